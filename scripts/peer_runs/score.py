"""How good the answers of any tool are: one definition for all.

    python score.py TRAIN-CACHE TEST-CACHE TOP.txt

prints a JSON object of percentages. The definitions are those of `lookalike
evaluate`: averages over the test examples that have a label; propensities with
A = 0.55, B = 1.5; the tail is the classes with at most five training examples.
"""

import json
import sys

import examples
import numpy

CUTS = (1, 3, 5)
TAIL_EXAMPLES_MAX = 5
A, B = 0.55, 1.5


def metrics(class_counts: numpy.ndarray, num_train: int, truth, top: numpy.ndarray) -> dict[str, float | None]:
    """`truth` has a row of labels for each example, `top` its best classes, best first, -1 for none."""
    labelled = truth.getnnz(axis=1) > 0
    truth, top = truth[labelled], top[labelled]
    is_class = top >= 0
    rows = numpy.arange(len(top))[:, None]
    classes = numpy.where(is_class, top, 0)
    hits = numpy.asarray(truth[rows, classes].todense()).reshape(top.shape).astype(bool) & is_class

    c = max(numpy.log(max(num_train, 1)) - 1, 0) * (B + 1) ** A
    worth = 1 + c * (class_counts + B) ** -A
    is_tail = class_counts <= TAIL_EXAMPLES_MAX
    tail_labels = truth @ is_tail.astype(numpy.float64)
    has_tail = tail_labels > 0

    result = {}
    for k in CUTS:
        found = hits[:, :k]
        tail_found = found & is_tail[classes[:, :k]]
        tail_given = is_class[:, :k] & is_tail[classes[:, :k]]
        result[f"P@{k}"] = percent(found.sum(), k * len(top))
        result[f"PSP@{k}"] = percent((found * worth[classes[:, :k]]).sum(), best_possible(truth, worth, k))
        recall = tail_found[has_tail].sum(axis=1) / tail_labels[has_tail]
        result[f"tail-recall@{k}"] = percent(recall.sum(), has_tail.sum())
        result[f"tail-precision@{k}"] = percent(tail_found.sum(), tail_given.sum())
    return result


def best_possible(truth, worth: numpy.ndarray, k: int) -> float:
    """The worth of the k most worthy labels of each example."""
    worths = worth[truth.indices]
    return sum(numpy.sort(worths[first:last])[-k:].sum() for first, last in zip(truth.indptr, truth.indptr[1:]))


def percent(part: float, whole: float) -> float | None:
    return 100 * float(part) / float(whole) if whole else None


def read_top(path: str) -> numpy.ndarray:
    with open(path) as lines:
        rows = [[int(field) for field in line.split()[: max(CUTS)]] for line in lines]
    top = numpy.full((len(rows), max(CUTS)), -1)
    for row, classes in zip(top, rows):
        row[: len(classes)] = classes
    return top


def main() -> None:
    train, test, top = sys.argv[1:]
    _, labels = examples.load(train)
    _, truth = examples.load(test)
    top = read_top(top)
    if len(top) != truth.shape[0]:
        sys.exit(f"{sys.argv[3]} answers {len(top)} examples, the test file has {truth.shape[0]}")
    counts = labels.getnnz(axis=0)
    num_train = int((labels.getnnz(axis=1) > 0).sum())
    print(json.dumps(metrics(counts, num_train, truth.tocsr(), top)))


if __name__ == "__main__":
    main()
