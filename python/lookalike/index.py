"""Hash tables that find, for a vector, the rows of a matrix that look alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lookalike import _native


class Found(NamedTuple):
    """What a query found, a row a vector; places beyond `counts` are empty."""

    ids: NDArray[np.int64]
    """Rows that were met, in the order they were; -1 in empty places."""
    counts: NDArray[np.int64]
    """How many were found for each vector."""
    log_probabilities: NDArray[np.float32]
    """The logarithm of each row's chance to be met; -inf in empty places."""


class LshIndex:
    """`l` hash tables of `k` functions each over the rows of a matrix.

    Similar vectors share a bucket more often, so a query finds rows whose inner
    product with it is large, in time that does not grow with the number of rows.

    Parameters
    ----------
    dim
        Numbers in a vector.
    k, l
        Functions a table, and tables. More functions make what is found more
        alike, and less of it; more tables find more.
    family
        `dwta`, winner-take-all, or `simhash`, signs of random projections.
    bin
        Dimensions in a bin (`dwta`).
    codes
        `clean`, or `overlapped` as in the paper's public code (`dwta`).
    seed
        Draws the functions.
    threads
        Threads to use; `None` for all cores.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.random.default_rng(0).normal(size=(1000, 32)).astype(np.float32)
    >>> index = LshIndex(dim=32, k=2, l=40)
    >>> index.build(weights)
    >>> found = index.query(weights[:3], budget=100)
    >>> [row in found.ids[row] for row in range(3)]
    [True, True, True]
    >>> bool(found.log_probabilities[0, 0] <= 0)
    True
    """

    def __init__(
        self,
        dim: int,
        k: int,
        l: int,  # noqa: E741 (the paper's name)
        family: str = "dwta",
        *,
        bin: int = 8,
        codes: str = "clean",
        seed: int = 1,
        threads: int | None = None,
    ) -> None:
        self._tables = _native.LshTables(dim, k, l, family, bin, codes, seed)
        self._threads = threads
        self._description = f"LshIndex(dim={dim}, k={k}, l={l}, family={family!r})"

    def build(self, weights: ArrayLike) -> None:
        """Hashes all rows of a matrix; O(rows · k · l)."""
        self._tables.build(_matrix("weights", weights), self._threads)

    def update(self, ids: ArrayLike, weights: ArrayLike) -> None:
        """Takes notice of rows that changed; the tables become as if built anew.

        `ids` are the rows, each once, and `weights` has their new values, a row
        an id.

        >>> index = LshIndex(dim=2, k=1, l=8, bin=2)
        >>> index.build([[1, 0], [0, 1], [1, 0]])
        >>> index.update([2], [[0, 1]])
        >>> sorted(index.query([[0, 5]], budget=3).ids[0].tolist())
        [-1, 1, 2]
        """
        self._tables.update(_ids(ids), _matrix("weights", weights), self._threads)

    def query(self, vectors: ArrayLike, budget: int, *, iteration: int = 0) -> Found:
        """Up to `budget` different rows that share a bucket with each vector.

        Each vector starts at a random table; `iteration` varies which, and the
        same `iteration` gives the same answer. A row's log-probability is that
        of meeting it in at least one table, `1 - (1 - p)^l`, with `p` estimated
        by the share of tables in which it was met (theorem 1 of the paper).
        """
        matrix = _matrix("vectors", vectors)
        return Found(*self._tables.query(matrix, budget, iteration, self._threads))

    def __len__(self) -> int:
        return len(self._tables)

    def __repr__(self) -> str:
        return self._description


def _matrix(name: str, values: ArrayLike) -> NDArray[np.float32]:
    matrix: NDArray[Any] = np.asarray(values)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise ValueError(
            f"{name} must be a matrix of real numbers, but has {matrix.ndim} dimensions of {matrix.dtype}"
        )
    return np.ascontiguousarray(matrix, np.float32)


def _ids(values: ArrayLike) -> NDArray[np.int64]:
    ids: NDArray[Any] = np.asarray(values)
    if ids.ndim != 1 or (ids.dtype.kind not in "iu" and ids.size > 0):
        raise ValueError(f"ids must be a list of integers, but have {ids.ndim} dimensions of {ids.dtype}")
    return np.ascontiguousarray(ids, np.int64)
