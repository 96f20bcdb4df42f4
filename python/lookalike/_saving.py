"""What is kept of an estimator: a model directory, and beside it what Python alone knows.

The model says which classes there are, in what order and by what names; `estimator.json`
has their type, the parameters and the history. It is written after the model stands in
its place, so a crash between the two leaves the file of the model before, and the command
line may have changed the model since: where they differ, the model is right.
"""

from __future__ import annotations

import json
import os
import tempfile
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lookalike import _native

_ESTIMATOR_FILE = "estimator.json"
_TRAINING_FILE = "training.safetensors"


class Saved(NamedTuple):
    """What a model directory held."""

    model: _native.Model
    classes: NDArray[Any]
    # Of a model that the command line made, none.
    parameters: dict[str, Any] | None
    history: list[dict[str, Any]]


def write(
    directory: str | PathLike[str],
    model: _native.Model,
    classes: NDArray[Any],
    parameters: dict[str, Any],
    history: list[dict[str, Any]],
    with_training_state: bool,
) -> None:
    """Writes a model directory with its `estimator.json`."""
    own = {
        "parameters": parameters,
        "classes": classes.tolist(),
        "classes_dtype": classes.dtype.str,
        "history": history,
    }
    try:
        text = json.dumps(own)
    except TypeError as error:
        raise TypeError(f"labels or parameters can't be saved: {error}") from None
    model.save(directory, with_training_state)
    # Half a file would be worse than that of the model before.
    unfinished = Path(directory) / f"{_ESTIMATOR_FILE}.unfinished"
    with unfinished.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(Path(directory) / _ESTIMATOR_FILE)


def read(directory: str | PathLike[str]) -> Saved:
    """Reads a model directory, written by `write` or by the command line."""
    folder = Path(directory)
    model = _native.Model.load(folder, (folder / _TRAINING_FILE).exists())
    count = json.loads(model.describe())["network"]["num-classes"]
    names = model.class_names()
    own = folder / _ESTIMATOR_FILE
    if not own.exists():
        return Saved(model, np.arange(count) if names is None else np.array(names), None, [])
    saved = json.loads(own.read_text(encoding="utf-8"))
    classes = np.array(saved["classes"], dtype=saved["classes_dtype"])
    return Saved(model, _as_in_model(classes, names, count), saved["parameters"], saved["history"])


def _as_in_model(classes: NDArray[Any], names: list[str] | None, count: int) -> NDArray[Any]:
    """The classes of the model, of the type that they were saved with where that is possible."""
    if names is None:
        return classes if len(classes) == count else np.arange(count)
    if names == [str(label) for label in classes]:
        return classes
    try:
        return np.array(names).astype(classes.dtype if classes.dtype.kind in "iu" else np.array(names).dtype)
    except ValueError:
        return np.array(names)


def to_files(model: _native.Model) -> dict[str, bytes]:
    """The files of a model, for pickling."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "model"
        model.save(directory, True)
        return {file.name: file.read_bytes() for file in directory.iterdir()}


def from_files(files: dict[str, bytes]) -> _native.Model:
    """The model of these files."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return _native.Model.load(folder, _TRAINING_FILE in files)
