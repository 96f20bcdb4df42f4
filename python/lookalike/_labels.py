"""Labels in all the forms they come in, as class ids.

A sparse matrix or a two-dimensional array has a column a class. Everything else
(a list of lists of ids or names, a one-dimensional array, a list of names) holds
labels; its classes are the different labels, sorted, as in scikit-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets

if TYPE_CHECKING:
    from lookalike._native import Labels


class Flat(NamedTuple):
    """The labels of all examples, one after the other."""

    labels: NDArray[Any]
    per_example: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.per_example)


class Encoded(NamedTuple):
    """The labels that the model knows, and how many of each example it does not."""

    labels: Labels
    unknown: NDArray[np.uint32]


def is_matrix(y: Any) -> bool:
    """Whether `y` has a column a class."""
    return bool(sparse.issparse(y)) or (isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] != 1)


def as_array(y: Any) -> Any:
    """Containers of others, such as those of pandas, as NumPy's; the rest as it is."""
    is_known = isinstance(y, (np.ndarray, list, tuple)) or sparse.issparse(y)
    return y if is_known or not hasattr(y, "__array__") else np.asarray(y)


def num_examples(y: Any) -> int:
    """How many examples `y` has labels of."""
    return int(y.shape[0]) if hasattr(y, "shape") else len(y)


def flatten(y: Any) -> Flat:
    """Labels that are no matrix."""
    y = as_array(y)
    items: Any = y if isinstance(y, np.ndarray) else list(y)
    _refuse_missing(items)
    is_nested = len(items) > 0 and all(_is_collection(item) for item in items)
    if is_nested and not (isinstance(items, np.ndarray) and items.dtype != object):
        lists = [list(item) for item in items]
        flat = [label for labels in lists for label in labels]
        lengths = np.fromiter((len(labels) for labels in lists), np.int64, len(lists))
        labels = np.asarray(flat) if flat else np.empty(0, np.int64)
        if labels.ndim != 1 or labels.dtype.kind not in "iubUS":
            raise ValueError(
                "y must hold class ids (integers) or names (strings) in each list, "
                f"but holds {labels.dtype} of {labels.ndim} dimensions"
            )
        return Flat(labels, lengths)
    array = column_or_1d(items if isinstance(items, np.ndarray) else np.asarray(items), warn=True)
    if array.dtype.kind != "O":
        array = check_array(array, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=0)
    with warnings.catch_warnings():
        # Many classes with few examples each are what this is for.
        warnings.filterwarnings("ignore", message=".*regression problem.*")
        check_classification_targets(array)
    return Flat(array, np.ones(len(array), np.int64))


def _refuse_missing(items: Any) -> None:
    """NumPy would make the string "nan" of a label that is missing."""
    if isinstance(items, np.ndarray) and items.dtype.kind not in "Of":
        return
    for example, item in enumerate(items):
        for label in item if _is_collection(item) else (item,):
            is_nan = isinstance(label, (float, np.floating)) and label != label
            if is_nan or label is None or type(label).__name__ == "NAType":
                raise ValueError(
                    f"example {example} of y has the label {label!r}, which is none (NaN, None): leave the "
                    "example out, or give it an empty list of labels"
                )


def _is_collection(item: Any) -> bool:
    return isinstance(item, Iterable) and not isinstance(item, (str, bytes))


def classes_of(y: Any) -> NDArray[Any]:
    """The classes, sorted."""
    y = as_array(y)
    if is_matrix(y):
        return np.arange(y.shape[1])
    classes: NDArray[Any] = np.unique(flatten(y).labels)
    return classes


def are_numbers(classes: NDArray[Any]) -> bool:
    """Whether the classes are 0, 1, 2, …, which is what a model calls classes without names."""
    return classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes)))


def places_of(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Where labels stand in `classes`, which need not be sorted; -1 for those that are not there.

    >>> places_of(np.array(["b", "x", "a"]), np.array(["b", "c", "a"])).tolist()
    [0, -1, 2]
    """
    order = np.argsort(classes, kind="stable")
    places = np.searchsorted(classes, labels, sorter=order)
    places = order[np.minimum(places, len(classes) - 1)]
    return np.where(classes[places] == labels, places, -1)


def grown(y: Any, classes: NDArray[Any], announced: Any = None) -> NDArray[Any]:
    """The classes with those of `y`, and those announced, that were not among them, at the end.

    >>> grown(["b", "a"], np.array(["c", "b"])).tolist()
    ['c', 'b', 'a']
    """
    y = as_array(y)
    if is_matrix(y):
        known = classes if y.shape[1] <= len(classes) else np.arange(y.shape[1])
        if not np.array_equal(known[: len(classes)], classes):
            raise ValueError(
                f"y has {y.shape[1]} columns, but there are {len(classes)} classes with other names"
            )
        return known
    new = [np.unique(flatten(y).labels)]
    if announced is not None:
        new.append(np.unique(np.asarray(announced)))
    for found in new:
        if len(found) > 0:
            check_type(found, classes)
            classes = np.concatenate([classes, found[places_of(found, classes) < 0]])
    return classes


def check_type(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    """Names are no numbers."""
    if len(labels) > 0 and (labels.dtype.kind in "USO") != (classes.dtype.kind in "USO"):
        raise ValueError(
            f"y holds {labels.dtype} labels like {labels[0]!r}, but the classes are {classes.dtype} "
            f"like {classes[0]!r}: give labels of the same type as in fit"
        )


def encode(y: Any, classes: NDArray[Any]) -> Encoded:
    """Class ids: places in `classes`."""
    y = as_array(y)
    return _encode_matrix(y, classes) if is_matrix(y) else _encode_flat(flatten(y), classes)


def _encode_matrix(y: Any, classes: NDArray[Any]) -> Encoded:
    if y.shape[1] != len(classes):
        raise ValueError(f"y has {y.shape[1]} columns, but there are {len(classes)} classes")
    if not sparse.issparse(y):
        y = check_array(y, dtype=None, input_name="y", ensure_min_samples=0)
    matrix = sparse.csr_array(y)
    if matrix.dtype.kind not in "iubf":
        raise ValueError(f"y must be a matrix of zeros and ones, but holds {matrix.dtype}")
    if (matrix.data == 0).any():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    indptr = matrix.indptr.astype(np.int64, copy=False)
    indices = matrix.indices.astype(np.int32, copy=False)
    return Encoded((indptr, indices, len(classes)), np.zeros(matrix.shape[0], np.uint32))


def _encode_flat(flat: Flat, classes: NDArray[Any]) -> Encoded:
    labels, names = flat.labels, classes
    check_type(labels, names)
    places = places_of(labels, names)
    is_known = places >= 0
    if is_known.all() and (flat.per_example == 1).all():
        offsets = np.arange(len(flat) + 1, dtype=np.int64)
        return Encoded((offsets, places.astype(np.int32), len(names)), np.zeros(len(flat), np.uint32))
    examples = np.repeat(np.arange(len(flat)), flat.per_example)
    unknown = np.bincount(examples[~is_known], minlength=len(flat)).astype(np.uint32)
    # One number for example and class: sorting it sorts both, and a label that
    # an example has twice is seen at once.
    pairs = np.unique(examples[is_known] * len(names) + places[is_known])
    indptr = np.zeros(len(flat) + 1, np.int64)
    np.cumsum(np.bincount(pairs // len(names), minlength=len(flat)), out=indptr[1:])
    return Encoded((indptr, (pairs % len(names)).astype(np.int32), len(names)), unknown)
