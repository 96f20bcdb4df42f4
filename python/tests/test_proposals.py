"""What a batch is scored against; NumPy alone, the PyTorch layer builds on it."""

from __future__ import annotations

import numpy as np
import pytest

from lookalike._proposals import Proposer, _draw_others
from lookalike._settings import training_settings

CLASSES, DIM = 400, 16
SAMPLERS = ["lsh-embedding", "lsh-label", "mixed", "log-uniform", "frequency", "uniform"]


def proposer(sampler, budget, *, shared=True, settings=None):
    given = {"sampler": sampler, "budget": budget, "seed": 7}
    counts = np.arange(CLASSES, dtype=np.uint32)
    return Proposer(training_settings(None, settings, given), DIM, counts, shared, 1)


def batch(examples, seed=0):
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(CLASSES, DIM)).astype(np.float32)
    inputs = random.normal(size=(examples, DIM)).astype(np.float32)
    return inputs, random.integers(CLASSES, size=examples), vectors


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("examples", [1, 5, 64])
def test_a_batch_shares_at_most_its_budget(sampler, examples):
    inputs, targets, vectors = batch(examples)
    one = proposer(sampler, 30)
    for iteration in range(5):
        if one.prepare(iteration, examples):
            one.refresh(vectors)
        classes, is_negative, log_q = one.by_batch(iteration, inputs, targets, vectors)
        assert (np.diff(classes) > 0).all()
        assert set(targets) <= set(classes)
        # The mixed sampler counts all targets of the batch as found.
        others = np.setdiff1d(classes[is_negative], targets)
        assert 0 < len(others) <= 30
        assert (log_q is None) == sampler.startswith("lsh")
    again = one.by_batch(iteration, inputs, targets, vectors)
    np.testing.assert_array_equal(again.classes, classes)


@pytest.mark.parametrize("sampler", ["mixed", "uniform", "log-uniform", "frequency"])
def test_shared_negatives_estimate_the_sum_over_all_classes(sampler):
    """With log-q, each example's sum over the negatives has the mean of its sum over all classes."""
    inputs, targets, vectors = batch(6)
    inputs /= 4
    one = proposer(sampler, 60)
    if one.prepare(0, len(inputs)):
        one.refresh(vectors)
    exact = np.exp(inputs @ vectors.T).sum(axis=1)
    ratios = []
    for iteration in range(2000):
        classes, is_negative, log_q = one.by_batch(iteration, inputs, targets, vectors)
        weights = np.exp(-log_q[is_negative])
        ratios.append(np.exp(inputs @ vectors[classes[is_negative]].T) @ weights / exact)
    errors = np.std(ratios, axis=0) / len(ratios) ** 0.5
    # The chance of a class in draws until a number of different ones is known up to 1% (inclusion.rs).
    slack = 0.0 if sampler in ("mixed", "uniform") else 0.02
    assert (np.abs(np.mean(ratios, axis=0) - 1) < 5 * errors + slack).all(), np.mean(ratios, axis=0)


def test_the_others_are_drawn_alike():
    known = np.array([0, 1, 5, 9])
    chance = np.random.default_rng(3)
    drawn = np.concatenate([_draw_others(chance, 12, known, 3) for _ in range(4000)])
    counts = np.bincount(drawn, minlength=12)
    assert not counts[known].any()
    # 4000 draws of 3 out of 8: 1500 each, give or take 31.
    assert (np.abs(np.delete(counts, known) - 1500) < 5 * 31).all(), counts


def test_tables_are_refreshed_on_schedule_once_enough_rows_have_changed():
    inputs, targets, vectors = batch(8)
    one = proposer("lsh-label", 16, settings={"lsh": {"refresh-first": 2}})
    refreshed, rows, rows_between = [], 0, []
    for iteration in range(40):
        if one.prepare(iteration, len(inputs)):
            one.refresh(vectors)
            refreshed.append(iteration)
            rows_between.append(rows)
            rows = 0
        rows += len(one.by_batch(iteration, inputs, targets, vectors).classes)
    assert refreshed[0] == 0
    assert len(refreshed) > 1
    assert all(200 <= rows < 200 + 3 * 24 for rows in rows_between[1:]), rows_between
    assert one.prepare(40, 9), "a larger batch needs tables for a smaller part of the budget"
