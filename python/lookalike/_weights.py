"""How much examples count in training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lookalike import _labels

if TYPE_CHECKING:
    from lookalike._native import Labels


def of_examples(
    sample_weight: Any, class_weight: Any, labels: Labels, classes: NDArray[Any]
) -> NDArray[np.float32] | None:
    """The weight of each example: its own times the mean of those of its classes."""
    indptr, indices, _ = labels
    count = len(indptr) - 1
    weights = np.ones(count, np.float32)
    if sample_weight is None and class_weight is None:
        return None
    if sample_weight is not None:
        weights = np.ascontiguousarray(sample_weight, np.float32)
        if weights.ndim == 0:
            weights = np.full(count, weights, np.float32)
        if weights.shape != (count,):
            raise ValueError(f"sample_weight has the shape {weights.shape}, but X has {count} examples")
        wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if len(wrong) > 0:
            raise ValueError(
                f"sample_weight[{wrong[0]}] is {weights[wrong[0]]}, but must be a finite number, 0 or more"
            )
    if class_weight is not None:
        weights = weights * _mean_of_classes(of_classes(class_weight, labels, classes), indptr, indices)
    return weights


def of_classes(class_weight: Any, labels: Labels, classes: NDArray[Any]) -> NDArray[np.float32]:
    """The weight of each class: those of a mapping, others 1; or `"balanced"`."""
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f'class_weight is {class_weight!r}, but must be a mapping, "balanced" or None')
        counts = np.bincount(labels[1], minlength=len(classes))
        present = max(int((counts > 0).sum()), 1)
        return (len(labels[1]) / (present * np.maximum(counts, 1))).astype(np.float32)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f'class_weight is {class_weight!r}, but must be a mapping, "balanced" or None')
    weights = np.ones(len(classes), np.float32)
    for label, weight in class_weight.items():
        place = int(_labels.places_of(np.asarray([label]), classes)[0])
        if place < 0:
            raise ValueError(f"class_weight has a weight of {label!r}, which is none of the classes")
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"class_weight[{label!r}] is {weight}, but must be a finite number, 0 or more")
        weights[place] = weight
    return weights


def _mean_of_classes(
    weights: NDArray[np.float32], indptr: NDArray[np.int64], indices: NDArray[np.int32]
) -> NDArray[np.float32]:
    lengths = np.diff(indptr)
    examples = np.repeat(np.arange(len(lengths)), lengths)
    sums = np.bincount(examples, weights=weights[indices], minlength=len(lengths))
    # An example without labels teaches nothing, whatever it weighs.
    return np.where(lengths > 0, sums / np.maximum(lengths, 1), 1.0).astype(np.float32)
