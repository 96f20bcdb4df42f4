"""How classes are found: `search` and `effort`."""

from __future__ import annotations

import numpy as np
import pytest

from lookalike import ExtremeClassifier, datasets


@pytest.fixture(scope="module")
def model_and_test():
    """A model with a search index, which small ones have not."""
    train, test = datasets.make_classification(2600, features=500, train=8000, test=50, noise=0.0)
    model = ExtremeClassifier(epochs=1, hidden=[16]).fit(train.X, train.Y)
    assert len(model.classes_) >= 2000
    return model, test


def test_full_effort_is_an_exact_search(model_and_test):
    model, test = model_and_test
    exact, probabilities = model.top_k(test.X)
    everything = len(model.classes_)
    found, of_found = model.top_k(test.X, search="fast", effort=everything)
    assert np.array_equal(exact, found)
    assert np.array_equal(probabilities, of_found)
    assert np.array_equal(model.predict(test.X, 3, search="fast", effort=everything), exact[:, :3])


def test_a_fast_search_finds_most(model_and_test):
    model, test = model_and_test
    exact, _ = model.top_k(test.X)
    found, _ = model.top_k(test.X, search="fast", effort=200)
    shares = [len(set(a) & set(b)) / len(a) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]
    measured = model.evaluate(test.X, test.Y, search="fast", effort=200)["recall of search"]
    assert 0.5 < np.mean(shares) <= 1.0
    assert measured == pytest.approx(np.mean(shares), abs=1e-6)
    assert "recall of search" not in model.evaluate(test.X, test.Y)


@pytest.mark.parametrize("wish", [{"search": "psychic"}, {"search": "fast", "effort": 0}, {"effort": -1}])
def test_what_is_no_search_is_refused(model_and_test, wish):
    model, test = model_and_test
    with pytest.raises((ValueError, OverflowError)):
        model.top_k(test.X, **wish)
