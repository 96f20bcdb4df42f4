"""The hash index, against theory and a naive twin."""

from __future__ import annotations

import numpy as np
import pytest

from lookalike import LshIndex


@pytest.fixture(scope="module")
def vectors():
    return np.random.default_rng(7).normal(size=(500, 24)).astype(np.float32)


@pytest.mark.parametrize("family", ["dwta", "simhash"])
def test_what_is_found_is_distinct_and_repeatable(vectors, family):
    index = LshIndex(24, 2, 20, family)
    index.build(vectors)
    assert len(index) == 500
    found = index.query(vectors[:40], budget=60, iteration=3)
    for row, count in enumerate(found.counts):
        ids = found.ids[row, :count]
        assert len(set(ids)) == count
        assert (found.ids[row, count:] == -1).all()
        assert np.isfinite(found.log_probabilities[row, :count]).all()
        assert (found.log_probabilities[row, :count] <= 0).all()
    again = index.query(vectors[:40], budget=60, iteration=3)
    np.testing.assert_array_equal(found.ids, again.ids)
    assert not np.array_equal(found.ids, index.query(vectors[:40], budget=60, iteration=4).ids)
    one = LshIndex(24, 2, 20, family, threads=1)
    one.build(vectors)
    np.testing.assert_array_equal(one.query(vectors[:40], budget=60, iteration=3).ids, found.ids)


@pytest.mark.parametrize("family", ["dwta", "simhash"])
def test_an_update_is_as_good_as_a_rebuild(vectors, family):
    changed = np.array([3, 499, 77])
    moved = vectors.copy()
    moved[changed] = np.random.default_rng(1).normal(size=(3, 24))
    updated, rebuilt = LshIndex(24, 3, 9, family), LshIndex(24, 3, 9, family)
    updated.build(vectors)
    updated.update(changed, moved[changed])
    rebuilt.build(moved)
    for one, other in zip(updated.query(moved, 500), rebuilt.query(moved, 500), strict=True):
        np.testing.assert_array_equal(one, other)


def test_near_vectors_are_found_more_often(vectors):
    index = LshIndex(24, 4, 30)
    index.build(vectors)
    queries = vectors[:100] + np.random.default_rng(2).normal(scale=0.1, size=(100, 24)).astype(np.float32)
    found = index.query(queries, budget=500)
    own = [row in found.ids[row] for row in range(100)]
    assert np.mean(own) > 0.95
    assert found.counts.mean() < 250, "and most others are not"


def test_probabilities_follow_the_theorem(vectors):
    """Over seeds, simhash meets with chance 1 - (1 - p^k)^l, p = 1 - angle / π."""
    k, tables, seeds = 3, 6, 400
    query, rows = vectors[:1], vectors[:60]
    cosines = rows @ query[0] / (np.linalg.norm(rows, axis=1) * np.linalg.norm(query))
    p = 1 - np.arccos(np.clip(cosines, -1, 1)) / np.pi
    expected = 1 - (1 - p**k) ** tables
    met = np.zeros(len(rows))
    for seed in range(seeds):
        index = LshIndex(24, k, tables, "simhash", seed=seed)
        index.build(rows)
        found = index.query(query, budget=len(rows))
        met[found.ids[0, : found.counts[0]]] += 1
    deviation = np.sqrt(expected * (1 - expected) / seeds).clip(1e-3)
    assert np.abs(met / seeds - expected).max() < (5 * deviation).max()
    # In many tables the estimate of each row's chance comes near the truth.
    many = LshIndex(24, k, 2000, "simhash")
    many.build(rows)
    found = many.query(query, budget=len(rows))
    estimated = 1 - (1 - np.exp(found.log_probabilities[0])) ** (1 / 2000)
    known = estimated < 0.02  # larger ones round to chance 1 in 2,000 tables
    np.testing.assert_allclose(estimated[known][: found.counts[0]], (p**k)[found.ids[0]][known], atol=0.01)


def test_budget_ends_a_query(vectors):
    index = LshIndex(24, 1, 50)
    index.build(vectors)
    found = index.query(vectors, budget=10)
    assert found.ids.shape == (500, 10)
    assert (found.counts == 10).all()
    assert index.query(vectors, budget=10_000).ids.shape == (500, 500)
