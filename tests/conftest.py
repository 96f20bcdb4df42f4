"""What tests of the program as a whole share: the program."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="session")
def programs():
    """The folder of what is built."""
    # The whole workspace and an example, so that what the Rust tests have built is used
    # again: naming a package would choose other features, and build everything anew.
    build = ["cargo", "build", "--quiet", "--release", "--workspace", "--bins", "--example", "sample_page"]
    subprocess.run(build, cwd=ROOT, check=True)
    return ROOT / "target" / "release"


@pytest.fixture(scope="session")
def program(request):
    if built := os.environ.get("LOOKALIKE_BIN"):
        return built
    return request.getfixturevalue("programs") / "lookalike"
