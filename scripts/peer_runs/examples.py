"""Examples in the Extreme Classification format as sparse matrices.

    python examples.py FILE.txt CACHE

keeps them as CACHE-features.npz and CACHE-labels.npz, so that reading text costs
neither time nor memory where training is measured.
"""

import array
import sys

import numpy
import scipy.sparse


def load(cache: str) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    """Features and labels that `main` has kept."""
    return scipy.sparse.load_npz(f"{cache}-features.npz"), scipy.sparse.load_npz(f"{cache}-labels.npz")


def read(path: str) -> tuple[scipy.sparse.csr_matrix, scipy.sparse.csr_matrix]:
    labels, label_ends = array.array("i"), array.array("q", [0])
    features, values, feature_ends = array.array("i"), array.array("f"), array.array("q", [0])
    with open(path) as lines:
        _, num_features, num_classes = map(int, next(lines).split())
        for line in lines:
            fields = line.rstrip("\n").split(" ")
            if ":" not in fields[0]:
                labels.extend(int(label) for label in fields.pop(0).split(",") if label)
            for field in fields:
                if field:
                    feature, _, value = field.partition(":")
                    features.append(int(feature))
                    values.append(float(value))
            label_ends.append(len(labels))
            feature_ends.append(len(features))
    ones = numpy.ones(len(labels), numpy.float32)
    x = matrix(numpy.asarray(values, numpy.float32), features, feature_ends, num_features)
    y = matrix(ones, labels, label_ends, num_classes)
    # A label that is named twice is one label.
    y.data[:] = 1
    return x, y


def matrix(values, columns: array.array, ends: array.array, width: int) -> scipy.sparse.csr_matrix:
    places = (numpy.asarray(columns), numpy.asarray(ends))
    rows = scipy.sparse.csr_matrix((values, *places), shape=(len(ends) - 1, width))
    rows.sum_duplicates()
    return rows


def main() -> None:
    path, cache = sys.argv[1:]
    x, y = read(path)
    scipy.sparse.save_npz(f"{cache}-features.npz", x)
    scipy.sparse.save_npz(f"{cache}-labels.npz", y)


if __name__ == "__main__":
    main()
