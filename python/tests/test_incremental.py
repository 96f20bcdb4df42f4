"""Classes that come and go, and weights."""

from __future__ import annotations

import pickle
import subprocess

import numpy as np
import pytest

from lookalike import ExtremeClassifier

# Without nearest examples, of which the nearest 200 count: where some go, others take their places.
QUICK = {"preset": "plain", "epochs": 30, "lr": 0.02, "hidden": 16, "batch": 16, "threads": 1}
TEXTS = ["cat meow", "cat purr", "dog woof", "dog bark"] * 6
LABELS = ["cat", "cat", "dog", "dog"] * 6
# Of known words: the vocabulary is that of the first texts.
NEW = (["meow woof", "purr bark"] * 12, ["yak", "ant"] * 12)


@pytest.fixture
def pets() -> ExtremeClassifier:
    return ExtremeClassifier("full", **QUICK, text={"min_documents": 1}).fit(TEXTS, LABELS)


def test_partial_fit_meets_new_classes(pets, tmp_path):
    before = pets.decision_function(TEXTS)
    copied = pickle.loads(pickle.dumps(pets))
    with pytest.raises(ValueError, match="same type"):
        pets.partial_fit(["a cat"], [3])
    assert pets.classes_.tolist() == ["cat", "dog"]
    np.testing.assert_array_equal(pets.decision_function(TEXTS), before)
    for _ in range(30):
        pets.partial_fit(TEXTS + NEW[0], LABELS + NEW[1])
    assert pets.classes_.tolist() == ["cat", "dog", "ant", "yak"]
    assert pets.score(TEXTS, LABELS) == 1.0
    assert pets.predict(["purr bark"]).tolist() == ["ant"]
    assert pets.predict_proba(["woof"]).shape == (1, 4)
    # A saved model and a pickle know them too, and go on.
    pets.save(tmp_path / "model")
    for other in (ExtremeClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(pets))):
        assert other.classes_.tolist() == pets.classes_.tolist()
        np.testing.assert_array_equal(other.decision_function(NEW[0]), pets.decision_function(NEW[0]))
        other.partial_fit(["a bee"], ["bee"])
        assert other.classes_[-1] == "bee"
    copied.partial_fit(TEXTS, LABELS, classes=["emu", "cat"])
    assert copied.classes_.tolist() == ["cat", "dog", "emu"]


def test_a_matrix_of_labels_may_get_columns(generated):
    train, _ = generated
    model = ExtremeClassifier(**QUICK).partial_fit(train.X, train.Y[:, :150])
    model.partial_fit(train.X, train.Y)
    assert len(model.classes_) == 200
    # Of fewer columns it is not clear which they are.
    with pytest.raises(ValueError, match="columns"):
        model.partial_fit(train.X, train.Y[:, :150])


@pytest.mark.parametrize("sparse", [False, True])
def test_a_later_call_may_be_larger(generated, sparse):
    train, _ = generated
    model = ExtremeClassifier(**{**QUICK, "sparse": sparse})
    for _ in range(3):
        model.partial_fit(train.X[:20], train.Y[:20])
    model.partial_fit(train.X, train.Y)


def test_removing_and_renaming(pets, tmp_path):
    pets.partial_fit(*NEW)
    scores = pets.decision_function(TEXTS, classes=["dog", "yak", "ant"])
    pets.remove_classes(["cat"])
    assert pets.classes_.tolist() == ["dog", "ant", "yak"]
    np.testing.assert_array_equal(pets.decision_function(TEXTS, classes=["dog", "yak", "ant"]), scores)
    pets.rename_classes({"ant": "yak", "yak": "ant"})
    np.testing.assert_array_equal(pets.decision_function(TEXTS, classes=["dog", "ant", "yak"]), scores)
    pets.partial_fit(["the ant"], ["ant"])
    for wrong, message in [(["nobody"], "none of the classes"), (["dog", "yak"], "at least two")]:
        with pytest.raises(ValueError, match=message):
            pets.remove_classes(wrong)
    with pytest.raises(ValueError, match="two classes"):
        pets.rename_classes({"dog": "ant"})
    assert pets.classes_.tolist() == ["dog", "yak", "ant"]
    pets.save(tmp_path / "model")
    assert ExtremeClassifier.load(tmp_path / "model").classes_.tolist() == pets.classes_.tolist()


def test_numbered_classes_can_be_removed(generated, tmp_path):
    train, test = generated
    model = ExtremeClassifier(**{**QUICK, "epochs": 2}).fit(train.X, train.Y)
    scores = model.decision_function(test.X, classes=[0, 7, 199])
    model.remove_classes([3, 5]).add_classes([500])
    assert (len(model.classes_), model.classes_[-1]) == (199, 500)
    np.testing.assert_array_equal(model.decision_function(test.X, classes=[0, 7, 199]), scores)
    model.save(tmp_path / "model")
    again = ExtremeClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.classes_, model.classes_)


def test_the_command_line_changes_classes_of_a_model_from_here(pets, tmp_path, command):
    pets.save(tmp_path / "model")
    subprocess.run([command, "classes", "rename", tmp_path / "model", "cat", "Katze"], check=True)
    assert ExtremeClassifier.load(tmp_path / "model").classes_.tolist() == ["Katze", "dog"]


def test_weights(generated):
    train, test = generated
    # Samplers draw by the number of an example.
    quick = {**QUICK, "epochs": 2, "sampler": "full"}
    plain = ExtremeClassifier(**quick).fit(train.X, train.Y)
    ones = ExtremeClassifier(**quick).fit(train.X, train.Y, sample_weight=np.ones(3000))
    np.testing.assert_array_equal(ones.decision_function(test.X), plain.decision_function(test.X))
    weights = np.where(np.arange(3000) % 2, 0.0, 1.0)
    half = ExtremeClassifier(**quick).fit(train.X, train.Y, sample_weight=weights)
    without = ExtremeClassifier(**quick).fit(train.X[::2], train.Y[::2])
    np.testing.assert_array_equal(half.decision_function(test.X), without.decision_function(test.X))
    for wrong, message in [
        (np.ones(7), "3000 examples"),
        (-np.ones(3000), "0 or more"),
        (np.full(3000, np.nan), "finite"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier(**quick).fit(train.X, train.Y, sample_weight=wrong)
        with pytest.raises(ValueError, match=message):
            plain.partial_fit(train.X, train.Y, sample_weight=wrong)


def test_class_weights():
    X, y = [[1.0, 0.0]] * 40, ["a"] * 30 + ["b"] * 10
    favoured = {"normalise": "none"}
    rare = ExtremeClassifier("full", **QUICK, settings=favoured, class_weight={"b": 10}).fit(X, y)
    assert rare.predict([[1.0, 0.0]]).tolist() == ["b"]
    even = ExtremeClassifier("full", **QUICK, settings=favoured, class_weight="balanced").fit(X, y)
    assert even.predict_proba([[1.0, 0.0]])[0] == pytest.approx([0.5, 0.5], abs=0.1)
    for wrong, message in [({"c": 1}, "none of the classes"), ({"a": -1}, "0 or more"), ("even", "balanced")]:
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier("full", **QUICK, class_weight=wrong).fit(X, y)
