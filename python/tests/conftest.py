"""What several tests need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lookalike import datasets

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def generated() -> tuple[datasets.Dataset, datasets.Dataset]:
    """A small data set that a model learns in a second."""
    return datasets.make_classification(
        200, features=600, train=3000, test=300, noise=0.0, labels_per_example=1.5
    )


@pytest.fixture(scope="session")
def command() -> str:
    """The command line, to compare with."""
    path = Path(os.environ.get("LOOKALIKE_BIN", ROOT / "target" / "release" / "lookalike"))
    if not path.exists():
        pytest.fail(f"{path} is missing: build it with `cargo build --release`, or set LOOKALIKE_BIN")
    return str(path)
