"""How much memory `fit` takes beside a sparse matrix of float32, as a share of the matrix.

    python scripts/measure_fit_memory.py 1300000    # rows of 100 values: 1 GB

One step: what training holds beside the matrix does not depend on how long it trains.
"""

from __future__ import annotations

import resource
import sys
from typing import Any

import numpy as np
from scipy import sparse

from lookalike import ExtremeClassifier


def matrix(rows: int, per_row: int, columns: int) -> Any:
    """Ones in the first columns of every row."""
    indices = np.tile(np.arange(per_row, dtype=np.int32), rows)
    indptr = np.arange(rows + 1, dtype=np.int32) * per_row
    return sparse.csr_array((np.ones(rows * per_row, np.float32), indices, indptr), shape=(rows, columns))


def peak_bytes() -> int:
    """The most memory this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Prints the size of the matrix in bytes, and the share of it that `fit` took."""
    rows = int(sys.argv[1])
    X, Y = matrix(rows, 100, 100), matrix(rows, 2, 50)
    # A small model first: its memory, and that of the libraries, is none of the question.
    ExtremeClassifier("uniform", preset="plain", hidden=16).fit(X[:1000], Y[:1000], time_limit=0)
    before = peak_bytes()
    ExtremeClassifier("uniform", preset="plain", hidden=16).fit(X, Y, time_limit=0)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    print(size, (peak_bytes() - before) / size)


if __name__ == "__main__":
    main()
