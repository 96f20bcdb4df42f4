"""Predicts a word from the words around it, with several output layers and equal time each.

    python examples/language_model.py --seconds 20
    python examples/language_model.py --train train.txt --test test.txt

Files hold an example a line, `word context-word:weight …`, as `lookalike.datasets.load` reads
them; without files, examples are generated. Needs PyTorch; its CPU build is enough.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lookalike import datasets
from lookalike.torch import SampledSoftmaxLoss

BATCH = 256
WIDTH = 64


class Batch(NamedTuple):
    """Context words of all examples, one after the other, and the words to predict."""

    ids: Tensor
    offsets: Tensor
    weights: Tensor
    target: Tensor


class Reader(nn.Module):
    """The mean of the context words' vectors, through a layer."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(words, WIDTH, mode="sum", sparse=True)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: Batch) -> Tensor:
        """A row an example."""
        mean = self.vectors(batch.ids, batch.offsets, per_sample_weights=batch.weights)
        hidden: Tensor = self.layer(mean).relu()
        return hidden


def batches(data: datasets.Dataset, seed: int | None, examples: int = BATCH) -> Iterator[Batch]:
    """Batches in a random order, or once in the order they stand."""
    order = np.arange(data.X.shape[0])
    if seed is not None:
        np.random.default_rng(seed).shuffle(order)
    for start in range(0, len(order), examples):
        rows = np.sort(order[start : start + examples])
        X, Y = data.X[rows], data.Y[rows]
        yield Batch(
            torch.from_numpy(X.indices).long(),
            torch.from_numpy(X.indptr[:-1]).long(),
            torch.from_numpy(X.data),
            torch.from_numpy(Y.indices[Y.indptr[:-1]]).long(),
        )


def train(reader: Reader, head: nn.Module, is_sparse: bool, data: datasets.Dataset, seconds: float) -> int:
    """Trains for a time; gives the number of steps."""
    sparse = [reader.vectors.weight, *(head.parameters() if is_sparse else [])]
    dense = [*reader.layer.parameters(), *([] if is_sparse else head.parameters())]
    optimizers = [torch.optim.SparseAdam(sparse, lr=0.005), torch.optim.Adam(dense, lr=0.005)]
    steps, started = 0, time.monotonic()
    for epoch in range(1_000_000):
        for batch in batches(data, epoch):
            if time.monotonic() - started > seconds:
                return steps
            for optimizer in optimizers:
                optimizer.zero_grad()
            head(reader(batch), batch.target).loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            steps += 1
    return steps


@torch.no_grad()
def exact_loss(reader: Reader, head: nn.Module, data: datasets.Dataset) -> float:
    """The mean cross-entropy over all classes."""
    head.eval()
    losses = [(float(head(reader(b), b.target).loss), len(b.target)) for b in batches(data, None, 128)]
    return sum(loss * count for loss, count in losses) / sum(count for _, count in losses)


def heads(classes: int, counts: NDArray[np.int64]) -> Iterator[tuple[str, nn.Module, bool]]:
    """Output layers, and whether their gradients are sparse."""
    cutoffs = [min(2000, classes // 4), min(20_000, classes // 2)]
    yield "full softmax", SampledSoftmaxLoss(classes, WIDTH, "full", class_counts=counts), False
    yield "adaptive softmax", nn.AdaptiveLogSoftmaxWithLoss(WIDTH, classes, cutoffs), False
    for sampler in ("log-uniform", "mixed", "lsh-label", "lsh-embedding"):
        head = SampledSoftmaxLoss(classes, WIDTH, sampler, class_counts=counts)
        yield f"sampled, {sampler}", head, True


def main() -> None:
    """Reads or generates data, trains each head, prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--train", help="a file of examples; generated if not given")
    parser.add_argument("--test", help="a file of other examples")
    parser.add_argument("--seconds", type=float, default=10.0, help="training time of each output layer")
    parser.add_argument("--only", default="", help="output layers with this in their name")
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.train and options.test:
        train_data, test_data = datasets.load(options.train), datasets.load(options.test)
    else:
        train_data, test_data = datasets.make_classification(
            10_000, features=10_000, train=50_000, test=1000, labels_per_example=1.0
        )
    test_data = datasets.Dataset(test_data.X[:2000], test_data.Y[:2000])
    words, classes = train_data.X.shape[1], train_data.Y.shape[1]
    counts = np.bincount(train_data.Y.indices, minlength=classes)
    print(f"{train_data.X.shape[0]} examples, {classes} classes; a guess has loss {math.log(classes):.2f}")
    print(f"{'output layer':<24}{'steps':>8}{'exact loss':>12}")
    for name, head, is_sparse in heads(classes, counts):
        if options.only not in name:
            continue
        torch.manual_seed(0)
        reader = Reader(words)
        steps = train(reader, head, is_sparse, train_data, options.seconds)
        print(f"{name:<24}{steps:>8}{exact_loss(reader, head, test_data):>12.3f}", flush=True)


if __name__ == "__main__":
    main()
