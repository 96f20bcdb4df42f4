"""The time of a training step of `lookalike.torch.SampledSoftmaxLoss`, by sampler and number of classes.

Prints the table of docs/python.md: the mean of 450 steps after 50, refreshed tables and all. Needs
PyTorch.
"""

from __future__ import annotations

import time

import torch

from lookalike.torch import SampledSoftmaxLoss

SAMPLERS = ["lsh-embedding", "lsh-label", "mixed", "log-uniform", "frequency", "uniform"]
EXAMPLES, DIM, BUDGET = 128, 64, 1000
WARM_UP_STEPS, STEPS = 50, 450


def step_seconds(sampler: str, classes: int) -> float:
    """The mean, so that refreshing the tables counts."""
    torch.manual_seed(0)
    head = SampledSoftmaxLoss(classes, DIM, sampler, BUDGET, class_counts=[1] * classes, threads=1)
    optimizer = torch.optim.SparseAdam(list(head.parameters()), lr=1e-3)
    started = 0.0
    for step in range(WARM_UP_STEPS + STEPS):
        if step == WARM_UP_STEPS:
            started = time.perf_counter()
        hidden, target = torch.randn(EXAMPLES, DIM), torch.randint(classes, (EXAMPLES,))
        optimizer.zero_grad()
        head(hidden, target).loss.backward()
        optimizer.step()
    return (time.perf_counter() - started) / STEPS


def main() -> None:
    """Prints a row a sampler."""
    torch.set_num_threads(1)
    sizes = [100_000, 1_000_000]
    print("| sampler |", " | ".join(f"{size:,} classes" for size in sizes), "|")
    for sampler in SAMPLERS:
        times = [f"{1e3 * step_seconds(sampler, size):.1f} ms" for size in sizes]
        print(f"| `{sampler}` |", " | ".join(times), "|", flush=True)


if __name__ == "__main__":
    main()
