"""Data sets: files of all formats that the command line reads, and generated ones."""

from __future__ import annotations

import random
import warnings
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from lookalike import _features, _labels, _native
from lookalike._cities import CITIES

__all__ = [
    "Dataset",
    "Named",
    "load",
    "load_matrix",
    "load_texts",
    "make_classification",
    "misspelt_cities",
    "save",
]


class Dataset(NamedTuple):
    """Examples: features and labels, both sparse, a row an example."""

    X: Any
    """A `scipy.sparse.csr_array` of float32."""
    Y: Any
    """A `scipy.sparse.csr_array` of ones, a column a class."""


class Named(NamedTuple):
    """Examples whose labels are names: what `ExtremeClassifier.fit` takes as `X` and `y`."""

    X: Any
    """A list of texts, or a `scipy.sparse.csr_array` of float32."""
    y: list[list[str]]
    """The names of each example's labels."""


def _dataset(arrays: tuple[_native.Features, _native.Labels]) -> Dataset:
    features, (indptr, indices, num_classes) = arrays
    ones = np.ones(len(indices), np.float32)
    shape = (len(indptr) - 1, num_classes)
    return Dataset(_features.to_csr(features), sparse.csr_array((ones, indices, indptr), shape=shape))


def load(
    path: str | PathLike[str],
    *,
    num_features: int | None = None,
    num_classes: int | None = None,
    skip_bad_rows: bool = False,
) -> Dataset:
    """Reads `label,label feature:value feature:value …` lines, or a packed file.

    The file may be compressed by gzip or zstd. An error names line and column.
    With `skip_bad_rows`, rows that can't be read are left out, with a warning.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
    >>> _ = path.write_text("2 4 3\\n0,2 1:0.5 3:1\\n1 0:2\\n")
    >>> data = load(path)
    >>> data.X.shape, data.Y.toarray().tolist()
    ((2, 4), [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    """
    arrays, notes = _native.read_examples(path, num_features, num_classes, skip_bad_rows)
    for note in notes:
        warnings.warn(note, stacklevel=2)
    return _dataset(arrays)


def load_texts(
    path: str | PathLike[str],
    *,
    format: str | None = None,
    text: str | int | None = None,
    labels: str | int | None = None,
    header: bool | None = None,
    label_separator: str = "|",
    quotes: bool = True,
    label_prefix: str = "__label__",
    with_labels: bool = True,
    skip_bad_rows: bool = False,
) -> Named:
    """Reads a file of texts and the names of their labels, as the command line does.

    The file may be compressed by gzip or zstd. An error names line and column.

    Parameters
    ----------
    path
        Columns separated by tabs or commas, JSON objects line by line, or
        fastText's `__label__x some text`.
    format
        `tsv`, `csv`, `json-lines`, `fasttext` or `lines`; `None` tells it from
        the first line.
    text, labels
        Their columns or JSON fields, by name or by number from 1. `None` is the
        one called `text` (`labels` or `label`), or the first (second).
    header
        Whether the first row names the columns. `None`: if a column is asked for
        by name, or called `text`, `label` or `labels`.
    label_separator
        What stands between several labels of a cell.
    quotes
        Whether a field that begins with `"` is quoted.
    label_prefix
        What marks a label in fastText's format.
    with_labels
        Whether there are labels; a file to predict needs none.
    skip_bad_rows
        Whether rows that can't be read are left out, with a warning, instead of
        an error. The first row tells the format and must be good.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.tsv"
    >>> _ = path.write_text("red apple\\tapple|red\\ngrey brick\\tbrick\\n")
    >>> data = load_texts(path)
    >>> data.X, data.y
    (['red apple', 'grey brick'], [['apple', 'red'], ['brick']])
    """
    texts, names, left_out = _native.read_texts(
        path,
        format=format,
        text=None if text is None else str(text),
        labels=None if labels is None else str(labels),
        header=header,
        label_separator=label_separator,
        quotes=quotes,
        label_prefix=label_prefix,
        with_labels=with_labels,
        skip_bad_rows=skip_bad_rows,
    )
    if left_out:
        warnings.warn(left_out, stacklevel=2)
    return Named(texts, names)


def load_matrix(
    path: str | PathLike[str], labels: str | PathLike[str], *, label_separator: str = "|"
) -> Named:
    """Reads a `.npy` matrix (float32 or float16) and a file of labels, a line for each row.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.save(folder / "vectors.npy", np.array([[0, 1.5], [2, 0]], np.float32))
    >>> _ = (folder / "labels.txt").write_text("warm|red\\ncold\\n")
    >>> data = load_matrix(folder / "vectors.npy", folder / "labels.txt")
    >>> data.X.toarray().tolist(), data.y
    ([[0.0, 1.5], [2.0, 0.0]], [['red', 'warm'], ['cold']])
    """
    (features, (indptr, indices, _)), names = _native.read_matrix(path, labels, label_separator)
    rows = np.split(indices, indptr[1:-1])
    return Named(_features.to_csr(features), [[names[label] for label in row] for row in rows])


def save(path: str | PathLike[str], X: Any, Y: Any, *, packed: bool = False) -> None:
    """Writes examples for the command line: as text, or packed, which opens at once.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "train.txt"
    >>> save(path, sparse.csr_array([[0, 0.5]]), [[3]])
    >>> path.read_text().splitlines()
    ['1 2 4', '3 1:0.5']
    """
    if _labels.is_matrix(Y):
        num_classes = Y.shape[1]
    else:
        ids = _labels.flatten(Y).labels
        if ids.dtype.kind not in "iu" and len(ids) > 0:
            raise ValueError(f"Y must hold class ids to be saved, but holds {ids.dtype}")
        num_classes = int(ids.max(initial=-1)) + 1
    encoded = _labels.encode(Y, np.arange(num_classes))
    matrix = sparse.csr_array(X)
    if encoded.unknown.any():
        raise ValueError("Y has negative class ids, but ids start at 0")
    _native.write_examples(path, _features.rows(matrix), encoded.labels, packed)


def make_classification(
    classes: int = 1000,
    *,
    features: int = 2000,
    train: int = 10_000,
    test: int = 1000,
    labels_per_example: float = 1.5,
    features_per_example: float = 20.0,
    label_skew: float = 0.6,
    noise: float = 0.1,
    classes_per_cluster: int = 32,
    random_state: int = 1,
) -> tuple[Dataset, Dataset]:
    """Generates a training and a test set with hard negatives.

    Classes stand in clusters whose members share most features. The best
    possible P@1 is about `1 - noise`. `label_skew` is 0 for classes that are
    equally frequent, and makes a steeper power law towards 1.

    >>> train, test = make_classification(50, features=100, train=200, test=20)
    >>> train.X.shape, test.Y.shape
    ((200, 100), (20, 50))
    """
    made = _native.generate_examples(
        classes=classes,
        features=features,
        train=train,
        test=test,
        labels_per_example=labels_per_example,
        features_per_example=features_per_example,
        label_skew=label_skew,
        noise=noise,
        classes_per_cluster=classes_per_cluster,
        seed=random_state,
    )
    return _dataset(made[0]), _dataset(made[1])


def misspelt_cities(
    per_city: int = 10, *, cities: int | None = None, random_state: int = 1
) -> tuple[list[str], list[str]]:
    """Misspelt names of cities, and what they should have been.

    >>> texts, names = misspelt_cities(2, cities=2)
    >>> len(texts), sorted(set(names))
    (4, ['Abidjan', 'Accra'])
    """
    chance = random.Random(random_state)
    names = [city for city in CITIES[:cities] for _ in range(per_city)]
    return [_misspell(name, chance) for name in names], names


def _misspell(name: str, chance: random.Random) -> str:
    """One or two letters lost, doubled, swapped or replaced."""
    letters = list(name)
    for _ in range(chance.choice([1, 1, 2])):
        place = chance.randrange(len(letters) - 1)
        match chance.randrange(4):
            case 0 if len(letters) > 3:
                del letters[place]
            case 1:
                letters.insert(place, letters[place])
            case 2:
                letters[place], letters[place + 1] = letters[place + 1], letters[place]
            case _:
                letters[place] = chance.choice("abcdefghijklmnopqrstuvwxyz")
    return "".join(letters)
