"""The exported network gives the same scores elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from lookalike import ExtremeClassifier

onnx = pytest.importorskip("lookalike.onnx")
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("normalise", ["l2", "none"])
@pytest.mark.parametrize("activation", ["relu", "linear"])
@pytest.mark.parametrize("hidden", [24, [24, 16]])
def test_onnxruntime_agrees(generated, tmp_path, normalise, activation, hidden):
    train, test = generated
    settings = {"normalise": normalise, "activation": activation}
    model = ExtremeClassifier("uniform", preset="plain", hidden=hidden, epochs=2, settings=settings)
    model.fit(train.X, train.Y)
    expected = model.decision_function(test.X)
    ids, values = onnx.padded_rows(test.X)
    for inputs, feed in [("sparse", {"ids": ids, "values": values}), ("dense", {"x": test.X.toarray()})]:
        path = str(tmp_path / f"{inputs}.onnx")
        onnx.export(model, path, inputs=inputs)
        (scores,) = onnxruntime.InferenceSession(path).run(["scores"], feed)
        np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_the_best_classes_are_those_of_predict(generated, tmp_path):
    train, test = generated
    model = ExtremeClassifier("uniform", preset="plain", hidden=24, epochs=2).fit(train.X, train.Y)
    onnx.export(model, tmp_path / "model.onnx", k=5)
    ids, values = onnx.padded_rows(test.X)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (classes,) = session.run(["classes"], {"ids": ids, "values": values})
    assert (classes == model.predict(test.X, k=5)).mean() > 0.99  # but for ties
    empty = {"ids": np.zeros((1, 1), np.int64), "values": np.zeros((1, 1), np.float32)}
    assert np.isfinite(session.run(["scores"], empty)[0]).all()


def test_an_unknown_kind_of_input_is_refused(generated, tmp_path):
    train, _ = generated
    model = ExtremeClassifier("uniform", preset="plain", hidden=8, epochs=1).fit(train.X, train.Y)
    with pytest.raises(ValueError, match="sparse"):
        onnx.export(model, tmp_path / "model.onnx", inputs="csr")


def test_sparse_weights_are_written_too(generated, tmp_path):
    train, test = generated
    settings = {"preset": "plain", "hidden": 24, "epochs": 2, "sparse": {"neighbours": False}}
    model = ExtremeClassifier("full", **settings).fit(train.X, train.Y)
    expected = model.decision_function(test.X)
    network = ExtremeClassifier("full", **{**settings, "sparse": False}).fit(train.X, train.Y)
    assert not np.allclose(expected, network.decision_function(test.X), atol=0.1), "the sparse part counts"
    ids, values = onnx.padded_rows(test.X)
    for inputs, feed in [("sparse", {"ids": ids, "values": values}), ("dense", {"x": test.X.toarray()})]:
        path = str(tmp_path / f"{inputs}.onnx")
        onnx.export(model, path, inputs=inputs)
        (scores,) = onnxruntime.InferenceSession(path).run(["scores"], feed)
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-3)


def test_what_the_export_does_not_know_is_refused_with_what_to_do(generated, tmp_path, monkeypatch):
    train, _ = generated
    model = ExtremeClassifier("full", preset="plain", hidden=24, epochs=1, sparse={"neighbours": False})
    model.fit(train.X, train.Y)
    monkeypatch.setattr(onnx, "_MATRIX_NUMBERS_MAX", 1000)
    with pytest.raises(NotImplementedError, match="train with sparse=False"):
        onnx.export(model, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
