"""Examples in all the forms they come in, as rows of a sparse matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from lookalike._native import Features


def as_texts(X: Any) -> list[str] | None:
    """The texts, if `X` is a sequence of texts."""
    if isinstance(X, str):
        raise ValueError("X is a single text, but must be a list of texts: write [text]")
    if isinstance(X, np.ndarray) or hasattr(X, "iloc"):  # pandas, for example
        return _texts_of_column(X)
    if not isinstance(X, (list, tuple)) or not any(isinstance(text, str) for text in X):
        return None
    for example, text in enumerate(X):
        if not isinstance(text, str):
            raise TypeError(f"X holds texts, but example {example} is {type(text).__name__}: {text!r}")
    return list(X)


def _texts_of_column(X: Any) -> list[str] | None:
    """The texts of an array or a column; a table of texts is refused in words."""
    first = np.asarray(X[:1]) if X.ndim == 2 else np.zeros(0)
    if first.dtype.kind in "OU" and any(isinstance(cell, str) for cell in first.flat):
        raise TypeError("X is a table with texts, but must be a list of texts: give one of its columns")
    texts = list(X) if X.ndim == 1 else []
    if not any(isinstance(text, str) for text in texts):
        return None
    for example, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"X holds texts, but example {example} is {text!r}: leave it out, or give it an empty text"
            )
    return [str(text) for text in texts]


def rows(X: Any) -> Features:
    """The arrays of a matrix of float32; those of a sparse one are not copied."""
    matrix = X if sparse.issparse(X) and X.format == "csr" else sparse.csr_array(X)
    if matrix.shape[1] > np.iinfo(np.int32).max:
        raise ValueError(f"X has {matrix.shape[1]} features, but ids of at most 31 bits can be used")
    indptr = matrix.indptr.astype(np.int64, copy=False)
    indices = matrix.indices.astype(np.int32, copy=False)
    return indptr, indices, matrix.data.astype(np.float32, copy=False), int(matrix.shape[1])


def to_csr(features: Features) -> Any:
    """A SciPy array of the rows."""
    indptr, indices, data, columns = features
    return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, columns))
