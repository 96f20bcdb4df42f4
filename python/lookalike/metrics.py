"""How good ranked predictions are, as shares of one.

With y an example's labels and `hits` those of them among its k best predictions:

=================  ===============================================================
`P@k`              hits / k
`capped-P@k`       hits / min(k, number of labels), what the paper prints as P@k
`nDCG@k`           hits, discounted by rank, over those of a perfect answer
`recall@k`         hits / number of labels
`PSP@k`            hits weighted by inverse propensity over the best possible
`tail-recall@k`    recall of labels that are rare in training
=================  ===============================================================

Examples without a label are left out. Predictions are what
`ExtremeClassifier.predict(X, k=…)` gives; labels have any form that `fit` takes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lookalike import _labels, _native
from lookalike._settings import merged

__all__ = ["measure", "ndcg_at_k", "precision_at_k", "psp_at_k", "recall_at_k"]


def measure(
    y_true: Any, y_pred: Any, k: Sequence[int] = (1, 3, 5), *, y_train: Any = None, **options: Any
) -> dict[str, float]:
    """All metrics at each `k`.

    With `y_train`, the labels of the training examples, also `PSP@k` and the
    metrics of rare classes; `options` are then `propensity_a`, `propensity_b`
    and `tail_examples_max`.

    >>> measure([["a"], ["b", "c"]], [["a", "b"], ["c", "a"]], k=[1, 2])["P@2"]
    0.5
    """
    y_true, y_train, predicted = _labels.as_array(y_true), _labels.as_array(y_train), np.asarray(y_pred)
    if predicted.ndim == 1:
        predicted = predicted[:, None]
    if predicted.ndim != 2:
        raise ValueError(f"y_pred must have a row an example, but has {predicted.ndim} dimensions")
    classes = _all_classes(y_true, predicted, y_train)
    truth = _labels.encode(y_true, classes)
    training = None
    if y_train is not None:
        (indptr, indices, _), _ = _labels.encode(y_train, classes)
        counts = np.bincount(indices, minlength=len(classes)).astype(np.uint32)
        training = (counts, int((np.diff(indptr) > 0).sum()))
    settings = json.dumps(merged(json.loads(_native.metric_settings()), {"k": list(k), **options}))
    ids = np.ascontiguousarray(np.searchsorted(classes, predicted), np.int64)
    if predicted.dtype.kind in "iu":
        ids[predicted < 0] = -1
    found = _native.measure(ids, truth.labels, truth.unknown, settings, training)
    return {name: value for name, value in found.items() if value is not None}


def _all_classes(y_true: Any, predicted: NDArray[Any], y_train: Any) -> NDArray[Any]:
    """Every class that occurs anywhere: a prediction need not occur in `y_true`."""
    if _labels.is_matrix(y_true):
        return np.arange(y_true.shape[1])
    known = [_labels.classes_of(y_true), np.unique(predicted)]
    if y_train is not None:
        known.append(_labels.classes_of(y_train))
    kinds = {classes.dtype.kind in "USO" for classes in known if len(classes) > 0}
    if len(kinds) > 1:
        raise ValueError("labels and predictions must both be names or both be numbers")
    classes: NDArray[Any] = np.unique(np.concatenate(known))
    if classes.dtype.kind in "iuf" and predicted.min(initial=0) < 0:
        classes = classes[classes >= 0]
    return classes


def precision_at_k(y_true: Any, y_pred: Any, k: int = 1) -> float:
    """The mean share of the `k` best predictions that are labels.

    >>> precision_at_k([[0], [1, 2]], [[0, 1], [2, 1]], k=2)
    0.75
    """
    return measure(y_true, y_pred, [k])[f"P@{k}"]


def recall_at_k(y_true: Any, y_pred: Any, k: int = 5) -> float:
    """The mean share of labels that are among the `k` best predictions.

    >>> recall_at_k([[0], [1, 2]], [[0, 1], [2, 0]], k=2)
    0.75
    """
    return measure(y_true, y_pred, [k])[f"recall@{k}"]


def ndcg_at_k(y_true: Any, y_pred: Any, k: int = 5) -> float:
    """The mean normalised discounted cumulative gain.

    >>> round(ndcg_at_k([[0]], [[1, 0]], k=2), 3)
    0.631
    """
    return measure(y_true, y_pred, [k])[f"nDCG@{k}"]


def psp_at_k(
    y_true: Any,
    y_pred: Any,
    y_train: Any,
    k: int = 5,
    *,
    propensity_a: float = 0.55,
    propensity_b: float = 1.5,
) -> float:
    """Propensity-scored precision (Jain, Prabhu and Varma, 2016).

    >>> psp_at_k([[0], [1]], [[0], [1]], y_train=[0, 0, 0, 1], k=1)
    1.0
    """
    found = measure(
        y_true, y_pred, [k], y_train=y_train, propensity_a=propensity_a, propensity_b=propensity_b
    )
    return found[f"PSP@{k}"]
