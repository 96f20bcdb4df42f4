"""The estimator does what scikit-learn's users expect of it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from lookalike import ExtremeClassifier, datasets
from lookalike._progress import Progress

# Enough to learn, little enough to be quick; the sampler does not matter here.
QUICK = {
    "preset": "plain",
    "sampler": "uniform",
    "hidden": 32,
    "epochs": 6,
    "batch": 64,
    "lr": 0.01,
    "random_state": 5,
}


@pytest.fixture(scope="module")
def fitted(generated):
    train, _ = generated
    return ExtremeClassifier(**QUICK).fit(train.X, train.Y)


@pytest.mark.parametrize(
    "sampler", ["lsh-embedding", "lsh-label", "mixed", "full", "top-k", "log-uniform", "nce"]
)
def test_every_sampler_learns(generated, sampler):
    train, test = generated
    model = ExtremeClassifier(**{**QUICK, "sampler": sampler, "budget": 40}).fit(train.X, train.Y)
    assert model.score(test.X, test.Y) > 0.3, model.history_  # by chance: 0.005


def test_all_forms_of_features_give_the_same_model(generated):
    train, test = generated
    dense = train.X.toarray()
    forms = [
        train.X,
        sparse.csr_matrix(train.X),
        train.X.tocsc(),
        train.X.tocoo(),
        dense,
        dense.astype(np.float64),
        np.asfortranarray(dense),
    ]
    models = [ExtremeClassifier(**QUICK).set_params(epochs=1).fit(form, train.Y) for form in forms]
    first = models[0].to_numpy()["output.weight"]
    for model in models[1:]:
        np.testing.assert_array_equal(first, model.to_numpy()["output.weight"])
    np.testing.assert_array_equal(models[0].predict(test.X), models[0].predict(test.X.toarray()))


def test_all_forms_of_labels_give_the_same_model(generated):
    train, _ = generated
    lists = [row.indices.tolist() for row in (train.Y[[i]] for i in range(train.Y.shape[0]))]
    columns = train.Y.shape[1]
    used = np.unique(np.concatenate(lists))
    assert len(used) == columns, "all classes occur, so that lists and matrices know the same ones"
    names = [[f"class {label:03}" for label in labels] for labels in lists]
    forms = [
        train.Y,
        sparse.csr_matrix(train.Y).astype(bool),
        train.Y.toarray(),
        lists,
        [tuple(reversed(labels)) + tuple(labels) for labels in lists],
        [set(labels) for labels in lists],
        [np.array(labels) for labels in lists],
        names,
    ]
    models = [ExtremeClassifier(**QUICK).set_params(epochs=1).fit(train.X, form) for form in forms]
    first = models[0].to_numpy()["output.weight"]
    for model in models[1:]:
        np.testing.assert_array_equal(first, model.to_numpy()["output.weight"])
    assert models[-1].classes_[7] == "class 007"
    assert models[-1].predict(train.X[:3]).tolist() == [
        f"class {i:03}" for i in models[0].predict(train.X[:3])
    ]


def test_labels_keep_their_type():
    X = np.eye(4)[[0, 1, 2, 3] * 8]
    for labels in ([10, 20, 30, 40], ["a", "b", "c", "d"], [-1.0, 0.0, 1.0, 2.0]):
        y = np.array(labels * 8)
        model = ExtremeClassifier("full", preset="plain", epochs=60, lr=0.03).fit(X, y)
        assert model.classes_.dtype == y.dtype
        assert model.predict(np.eye(4)).tolist() == labels
        assert model.score(X, y) == 1.0


def test_texts_are_read_with_names_of_any_type():
    texts, names = datasets.misspelt_cities(10, cities=30)
    settings = {**QUICK, "epochs": 20, "batch": 32, "sampler": "full"}
    by_name = ExtremeClassifier(**settings).fit(texts, names)
    numbers = np.unique(names, return_inverse=True)[1] * 10
    by_number = ExtremeClassifier(**settings).fit(np.array(texts), numbers)
    assert by_name.score(texts, names) > 0.95
    assert (
        by_number.predict(texts).tolist()
        == (by_name.classes_.searchsorted(by_name.predict(texts)) * 10).tolist()
    )
    assert by_number.classes_.tolist() == sorted(set(numbers.tolist())), "numbers stay in their order"
    with pytest.raises(ValueError, match="X has 3 features, but ExtremeClassifier"):
        by_name.predict(np.ones((1, 3)))


def test_probabilities_scores_and_ranks_agree(generated, fitted):
    _, test = generated
    X = test.X[:50]
    probabilities = fitted.predict_proba(X)
    scores = fitted.decision_function(X)
    assert probabilities.shape == scores.shape == (50, 200)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    shifted = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(probabilities, shifted / shifted.sum(axis=1, keepdims=True), rtol=1e-3)
    classes, best = fitted.top_k(X, k=5)
    np.testing.assert_array_equal(classes, np.argsort(-probabilities, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(best, np.take_along_axis(probabilities, classes, axis=1), rtol=1e-4)
    np.testing.assert_array_equal(fitted.predict(X, k=5), classes)
    np.testing.assert_array_equal(fitted.predict(X), classes[:, 0])
    chosen = fitted.decision_function(X, classes=[17, 3])
    np.testing.assert_allclose(chosen, scores[:, [17, 3]], rtol=1e-5, atol=1e-5)
    assert fitted.predict(X, k=1000).shape == (50, 200), "no more than there are"


def test_weights_are_what_predicts(generated):
    train, test = generated
    settings = {"activation": "relu", "normalise": "l2"}
    fitted = ExtremeClassifier(**QUICK, settings=settings).fit(train.X, train.Y)
    weights = fitted.to_numpy()
    values = test.X.toarray()
    values /= np.linalg.norm(values, axis=1, keepdims=True).clip(1e-30)
    hidden = np.maximum(values @ weights["input.weight"] + weights["input.bias"], 0)
    np.testing.assert_allclose(fitted.embed(test.X), hidden, atol=1e-5)
    scores = hidden @ weights["output.weight"].T + weights["output.bias"]
    np.testing.assert_allclose(fitted.decision_function(test.X), scores, atol=1e-4)


def test_evaluation_and_history_agree_with_metrics(generated):
    train, test = generated
    model = ExtremeClassifier(**QUICK).fit(train.X, train.Y, eval_set=(test.X, test.Y), k=[1, 2])
    assert [entry["epoch"] for entry in model.history_] == [1, 2, 3, 4, 5, 6]
    assert model.history_[0]["loss"] > model.history_[-1]["loss"] > 0
    measured = model.evaluate(test.X, test.Y, k=[1, 2])
    assert measured["P@2"] == pytest.approx(model.history_[-1]["P@2"])
    hits = [
        best in row.indices
        for best, row in zip(model.predict(test.X), (test.Y[[i]] for i in range(300)), strict=True)
    ]
    assert model.score(test.X, test.Y) == pytest.approx(np.mean(hits))


def test_labels_never_seen_count_as_missed():
    X = np.eye(2)[[0, 1] * 10]
    model = ExtremeClassifier("full", preset="plain", epochs=60, lr=0.03).fit(X, ["a", "b"] * 10)
    assert model.score(np.eye(2), ["a", "zebra"]) == 0.5
    assert model.evaluate(np.eye(2), [["a", "zebra"], ["b"]], k=[1])["recall@1"] == 0.75


def test_patience_keeps_the_best_model(generated):
    train, test = generated
    model = ExtremeClassifier(**{**QUICK, "epochs": 100})
    model.fit(train.X, train.Y, eval_set=(test.X, test.Y), patience=2, k=[1])
    scores = [entry["P@1"] for entry in model.history_]
    assert len(scores) < 100
    assert model.score(test.X, test.Y) == pytest.approx(max(scores))


def test_time_limit_ends_training(generated):
    train, _ = generated
    model = ExtremeClassifier(**{**QUICK, "epochs": 10_000}).fit(train.X, train.Y, time_limit=0)
    assert model.history_[-1]["step"] == 1


def test_partial_fit_learns_in_pieces(generated):
    train, test = generated
    model = ExtremeClassifier(**QUICK)
    for _ in range(6):
        for start in range(0, 3000, 1000):
            model.partial_fit(train.X[start : start + 1000], train.Y[start : start + 1000])
    assert model.score(test.X, test.Y) > 0.5
    counts = model._model.class_counts()
    np.testing.assert_array_equal(counts, 6 * np.bincount(train.Y.indices, minlength=200))
    with pytest.raises(ValueError, match="call fit to start again"):
        model.set_params(hidden=64).partial_fit(train.X, train.Y)
    assert model.score(test.X, test.Y) > 0.5, "the model survives wrong settings"


@pytest.mark.parametrize("sparse_part", [False, True])
def test_a_partial_fit_that_fails_leaves_the_model_as_it_was(generated, monkeypatch, sparse_part):
    train, _ = generated
    model = ExtremeClassifier(**QUICK, sparse=sparse_part).partial_fit(train.X, train.Y)
    untouched = pickle.loads(pickle.dumps(model))
    for wrong, error, message in [
        ({"hidden": 64}, ValueError, "call fit to start again"),
        ({"batch": 0}, ValueError, "batch is 0"),
        ({"sampler": "lsh-label", "settings": {"lsh": {"k": 99}}}, ValueError, "99"),
        ({"lr": 1e30}, RuntimeError, "diverged"),
    ]:
        with pytest.raises(error, match=message):
            model.set_params(**wrong).partial_fit(train.X, train.Y)
        model.set_params(**QUICK, settings=None)

    def complain(self, report):
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "__call__", complain)
        with pytest.raises(ZeroDivisionError):
            model.partial_fit(train.X, train.Y)
    assert model.history_ == untouched.history_
    # Now, and with what the optimizer remembers after another pass.
    for _ in range(2):
        for name, value in untouched.to_numpy().items():
            np.testing.assert_array_equal(model.to_numpy()[name], value)
        for one in (model, untouched):
            one.partial_fit(train.X, train.Y)


def test_partial_fit_from_the_start_is_fit_for_one_epoch(generated):
    train, _ = generated
    constant = {**QUICK, "epochs": 1, "settings": {"lr-schedule": "constant"}}
    fitted = ExtremeClassifier(**constant).fit(train.X, train.Y).to_numpy()
    pieces = ExtremeClassifier(**QUICK).partial_fit(train.X, train.Y).to_numpy()
    np.testing.assert_array_equal(fitted["output.weight"], pieces["output.weight"])


def test_partial_fit_needs_to_know_the_classes():
    with pytest.raises(ValueError, match="needs classes"):
        ExtremeClassifier().partial_fit([[1.0]], [0])
    model = ExtremeClassifier("full").partial_fit([[1.0], [2.0]], ["a", "b"], classes=["a", "b", "c"])
    assert model.partial_fit([[1.0]], ["d"]).classes_.tolist() == ["a", "b", "c", "d"]


def test_pickles_copies_and_clones(generated, fitted):
    _, test = generated
    expected = fitted.decision_function(test.X)
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(other.decision_function(test.X), expected)
    bare = clone(fitted)
    assert bare.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        bare.predict(test.X)


def test_a_pickle_goes_on_training_as_the_original(generated):
    train, _ = generated
    model = ExtremeClassifier(**QUICK).partial_fit(train.X, train.Y)
    copied = pickle.loads(pickle.dumps(model))
    for one in (model, copied):
        one.partial_fit(train.X, train.Y)
    np.testing.assert_array_equal(*(one.to_numpy()["input.weight"] for one in (model, copied)))


def test_works_in_pipelines_searches_and_cross_validation(generated):
    texts, names = datasets.misspelt_cities(12, cities=20)
    settings = {"sampler": "full", "epochs": 20, "batch": 16, "lr": 0.01, "threads": 1}
    letters = TfidfVectorizer(analyzer="char", ngram_range=(1, 2))
    pipeline = make_pipeline(letters, ExtremeClassifier(**settings))
    scores = cross_val_score(pipeline, texts, names, cv=3)
    assert scores.min() > 0.6, scores
    scores = cross_val_score(ExtremeClassifier(**settings), np.array(texts), names, cv=3)
    assert scores.min() > 0.6, scores
    train, _ = generated
    search = GridSearchCV(ExtremeClassifier(**QUICK), {"epochs": [1, 6]}, cv=2).fit(train.X, train.Y)
    assert search.best_params_ == {"epochs": 6}


def test_settings_reach_training_and_unknown_ones_are_refused(generated):
    train, _ = generated
    settings = {"lsh": {"k": 3}, "lr_schedule": "linear", "members": 5}
    model = ExtremeClassifier("nce", hidden=[16, 8], members=3, settings=settings)
    used = model.settings_in_use()
    assert (used["sampler"], used["loss"], used["hidden"]) == ("log-uniform", "nce", [16, 8])
    assert used["members"] == 3
    assert used["lsh"]["k"] == 3
    assert used["lr-schedule"] == "linear"
    assert model.set_params(epochs=1).fit(train.X, train.Y).to_numpy()["hidden.0.weight"].shape == (16, 8)
    assert ExtremeClassifier(preset="wiki-325k").settings_in_use()["lsh"]["l"] == 300
    chosen = ExtremeClassifier(preset="auto", hidden=8)
    with pytest.raises(ValueError, match="auto depends on the whole data"):
        chosen.settings_in_use()
    with pytest.raises(ValueError, match="auto depends on the whole data"):
        chosen.partial_fit(train.X, train.Y)
    used = chosen.fit(train.X, train.Y).settings_in_use()
    assert (used["hidden"], used["epochs"]) == ([8], 10)
    # The sparse part is trained in all of them.
    assert used["sparse"]
    assert "epochs" not in used["sparse"]
    with pytest.raises(ValueError, match="epocs"):
        ExtremeClassifier(settings={"epocs": 3}).fit(train.X, train.Y)
    with pytest.raises(ValueError, match="no preset"):
        ExtremeClassifier(preset="papper").fit(train.X, train.Y)
    with pytest.raises(ValueError, match="lsh-embeding"):
        ExtremeClassifier("lsh-embeding").fit(train.X, train.Y)


def test_members_learn_apart(generated):
    train, test = generated
    alone, two = (ExtremeClassifier(**QUICK, members=members).fit(train.X, train.Y) for members in (1, 2))
    assert not np.array_equal(two.decision_function(test.X), alone.decision_function(test.X))
    assert two.score(test.X, test.Y) > 0.3  # by chance: 0.005
    # With nothing set there are four.
    chosen = ExtremeClassifier().fit(train.X[:200], train.Y[:200])
    assert chosen.settings_in_use()["members"] == 4


def test_probabilities_are_calibrated_with_nothing_set(generated):
    train, test = generated
    model = ExtremeClassifier(hidden=32).fit(train.X, train.Y)
    assert model.is_calibrated
    measured = model.evaluate(test.X, test.Y)
    assert measured["ECE"] < 0.15
    assert 0 < measured["Brier"] < 0.3
    # Several labels an example: each class has a probability of its own.
    probabilities = model.predict_proba(test.X[:50])
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    classes, best = model.top_k(test.X[:50], k=3)
    np.testing.assert_allclose(best, np.take_along_axis(probabilities, classes, axis=1), rtol=1e-6)
    certain = model.predict(test.X[:50], threshold=0.5)
    assert [len(row) for row in certain] == (probabilities >= 0.5).sum(axis=1).tolist()
    assert not ExtremeClassifier(**QUICK).fit(train.X, train.Y).is_calibrated


def test_nothing_known_gets_the_prior():
    texts = ["red apple", "green apple", "red brick", "grey brick"] * 100
    names = ["apple", "apple", "apple", "brick"] * 100
    model = ExtremeClassifier().fit(texts, names)
    np.testing.assert_allclose(model.predict_proba(["xyzzyqwv"]), [[0.75, 0.25]], rtol=1e-6)


def test_a_fit_that_fails_leaves_the_fitted_model(generated):
    train, test = generated
    model = ExtremeClassifier(**QUICK).fit(train.X, train.Y)
    before = model.predict(test.X)
    for X, y, message in [
        (train.X, [0], "has labels of 1"),
        (train.X, None, "requires y"),
        (np.full((4, 3), np.nan), [0, 1, 0, 1], "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
        np.testing.assert_array_equal(model.predict(test.X), before)
        assert model.n_features_in_ == train.X.shape[1]


def test_labels_that_are_missing_are_refused():
    X = np.eye(3)
    for y in (
        ["a", float("nan"), "b"],
        np.array([0.0, np.nan, 1.0]),
        np.array(["a", None, "b"], dtype=object),
        [["a"], ["b", float("nan")], ["c"]],
    ):
        with pytest.raises(ValueError, match="example 1 of y has the label"):
            ExtremeClassifier("full").fit(X, y)


def test_bad_settings_are_answered_with_the_choices():
    for parameters, message in [
        ({"epochs": -1}, "epochs is -1, but must be a whole number, 1 or more"),
        ({"sampler": "lsh"}, "sampler is 'lsh', but must be one of lsh-embedding, .*, nce"),
        ({"hidden": 2.5}, "hidden is 2.5"),
        ({"lr": "fast"}, "lr is 'fast'"),
        ({"random_state": -3}, "random_state is -3"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier(**parameters).fit(np.eye(2), [0, 1])


def test_many_classes_are_no_regression_problem(recwarn):
    ExtremeClassifier("full", epochs=1).fit(np.eye(40), np.arange(40))
    assert not [str(warning.message) for warning in recwarn if "regression" in str(warning.message)]
