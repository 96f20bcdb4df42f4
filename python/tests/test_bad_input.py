"""Bad input is refused with the exception that is expected, and what to do."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from lookalike import ExtremeClassifier, LshIndex

X = sparse.csr_array(np.eye(4, dtype=np.float32))
Y = sparse.csr_array(np.eye(4, dtype=np.float32))


def broken(indices, indptr=(0, 2, 4), data=None):
    """A matrix whose arrays are as given, unsorted and all."""
    data = np.ones(len(indices), np.float32) if data is None else np.asarray(data, np.float32)
    matrix = sparse.csr_array((2, 5), dtype=np.float32)
    matrix.indices, matrix.data = np.asarray(indices, np.int32), data
    matrix.indptr = np.asarray(indptr, np.int32)
    return matrix


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (broken([3, 1, 0, 2]), "example 0.*sum_duplicates"),
        (broken([0, 1, 2, 2]), "example 1.*sum_duplicates"),
        (broken([0, 1, 2, 9]), "found feature 9, expected one below 5"),
        (broken([-3, 1, 2, 3]), "ids start at 0"),
        (broken([0, 1, 2, 3], data=[1, np.nan, 1, 1]), "NaN"),
        (broken([0, 1, 2, 3], data=[1, np.inf, 1, 1]), "infinity"),
        (broken([0, 1, 2, 3], indptr=[0, 3, 2]), "check_format"),
    ],
)
def test_matrices_that_break_the_rules(matrix, message):
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier().fit(matrix, [0, 1])


def test_labels_that_break_the_rules():
    with pytest.raises(ValueError, match=r"example 0.*label.*sum_duplicates"):
        ExtremeClassifier().fit(sparse.csr_array(np.ones((2, 5), np.float32)), broken([3, 1, 0, 2]))
    for labels, message in [
        ([0, 1], "X has 4 examples, but y has labels of 2"),
        (None, "requires y"),
        ([1, 1, 1, 1], "2 classes or more"),
        ([0.5, 1.5, 0.1, 2.2], "continuous"),
        ([0, 1, np.nan, 1], "NaN"),
        ([[0.5], [1.5], [0.5], [1.5]], "class ids"),
        ([[], [], [], []], "2 classes or more"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier().fit(X, labels)


def test_features_that_break_the_rules():
    model = ExtremeClassifier("full", epochs=1).fit(X, Y)
    for features, error, message in [
        ("Paris", ValueError, r"write \[text\]"),
        (["Paris", 3], TypeError, "example 1 is int"),
        (np.array([["a", "b"]]), TypeError, "one of its columns"),
        (np.array(["a", float("nan")], object), TypeError, "example 1 is nan"),
        (pd.DataFrame({"text": ["a", "b"]}), TypeError, "one of its columns"),
        (np.ones(4), ValueError, "Expected 2D array"),
        (np.ones((1, 3)), ValueError, "X has 3 features, but ExtremeClassifier is expecting 4"),
        (["a text"], ValueError, "trained on a matrix"),
        (np.ones((1, 4), complex), ValueError, "Complex data not supported"),
    ]:
        with pytest.raises(error, match=message):
            model.predict(features)


def test_settings_that_mean_nothing():
    for parameters, message in [
        ({"epochs": 0}, "epochs is 0"),
        ({"lr": -1.0}, "lr is -1"),
        ({"hidden": []}, "hidden"),
        ({"batch": 0}, "batch"),
        ({"members": 0}, "members is 0"),
        ({"members": 2.0}, "members is 2.0"),
        ({"threads": 0}, "threads is 0"),
        ({"settings": {"lsh": {"k": 99}}}, "99"),
        ({"text": {"wrods": None}}, "wrods"),
    ]:
        examples = ["a b", "c d"] if "text" in parameters else np.eye(2)
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier(**parameters).fit(examples, [0, 1])
    for options, message in [
        ({"patience": 1}, "eval_set"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"k": []}, "no k"),
        ({"eval_set": (X, [0, 1])}, "X has 4 examples, but y has labels of 2"),
        ({"eval_set": (X, ["a"] * 4)}, "same type"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier("full").fit(X, [0, 1, 2, 3], **options)


def test_settings_that_mean_nothing_are_told_before_data_is_looked_at():
    """Neither examples nor labels are any good here."""
    for parameters, options, message in [
        ({"settings": {"lsh": {"k": 99}}}, {}, "99"),
        ({"settings": {"clip": 0.0}}, {}, "clip is 0"),
        ({"members": 65}, {}, "members is 65"),
        ({"settings": {"sparse": {"rate": -1.0}}}, {}, "sparse.rate is -1"),
        ({"settings": {"sampler": "full", "loss": "nce"}}, {}, "nce"),
        ({"preset": "paper", "settings": {"batch": 1 << 21}}, {}, "batch is"),
        ({}, {"k": [0]}, "k is 0"),
        ({}, {"time_limit": -1.0}, "time_limit"),
        ({}, {"patience": 3}, "eval_set"),
    ]:
        with pytest.raises(ValueError, match=message):
            ExtremeClassifier(**parameters).fit([["neither"], ["nor"]], [1, 2, 3], **options)


def test_a_learning_rate_that_no_one_means_gets_a_warning():
    with pytest.warns(UserWarning, match="the learning rate is 0.9"):
        ExtremeClassifier("full", epochs=1, lr=0.9).fit(X, Y)


def test_a_threshold_is_a_probability():
    model = ExtremeClassifier("full", epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="threshold is 80, but must be a probability"):
        model.predict(X, threshold=80)


def test_a_diverging_training_is_told():
    model = ExtremeClassifier("full", epochs=50, lr=1e30, settings={"normalise": "none"})
    with pytest.warns(UserWarning, match="the learning rate"), pytest.raises(RuntimeError, match="diverged"):
        model.fit(np.eye(4) * 1e30, [0, 1, 2, 3])


def test_prediction_before_training():
    for method in ("predict", "top_k", "predict_proba", "decision_function", "embed"):
        with pytest.raises(NotFittedError):
            getattr(ExtremeClassifier(), method)(X)
    with pytest.raises(NotFittedError):
        ExtremeClassifier().save("nowhere")


def test_directories_that_are_no_models(tmp_path):
    with pytest.raises(FileNotFoundError, match="not a model directory"):
        ExtremeClassifier.load(tmp_path / "nothing")
    model = ExtremeClassifier("full", epochs=1).fit(X, Y)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("mine")
    with pytest.raises(OSError, match="left as it is"):
        model.save(tmp_path / "precious")
    model.save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    newer = json.loads(config.read_text()) | {"format-version": 99}
    config.write_text(json.dumps(newer))
    with pytest.raises(ValueError, match="update lookalike"):
        ExtremeClassifier.load(tmp_path / "model")
    model.save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"broken")
    with pytest.raises(ValueError, match="damaged"):
        ExtremeClassifier.load(tmp_path / "model")


def test_an_index_refuses_what_it_cannot_hash():
    index = LshIndex(dim=4, k=2, l=3)
    with pytest.raises(RuntimeError, match="build"):
        index.query(np.ones((1, 4)), budget=1)
    index.build(np.ones((3, 4)))
    for call, message in [
        (lambda: index.build(np.ones((3, 5))), "5 columns"),
        (lambda: index.build(np.ones(3)), "matrix"),
        (lambda: index.build([["a"]]), "real numbers"),
        (lambda: index.build(np.full((3, 4), np.nan)), "NaN"),
        (lambda: index.build(np.ones((0, 4))), "0 rows"),
        (lambda: index.query(np.ones((1, 4)), budget=0), "budget is 0"),
        (lambda: index.update([7], np.ones((1, 4))), "7 is out of range"),
        (lambda: index.update([-1], np.ones((1, 4))), "-1 is out of range"),
        (lambda: index.update([1, 1], np.ones((2, 4))), "twice"),
        (lambda: index.update([1], np.ones((2, 4))), "2 rows"),
        (lambda: LshIndex(dim=4, k=0, l=1), "K = 0"),
        (lambda: LshIndex(dim=4, k=1, l=1, family="minhash"), "minhash"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
