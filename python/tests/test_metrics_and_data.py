"""Metrics against definitions, and data sets there and back."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from scipy import sparse

from lookalike import datasets, metrics


def naive(truth, predicted, k):
    precision, recall, gain = [], [], []
    for labels, best in zip(truth, predicted, strict=True):
        if not labels:
            continue
        hits = [label in labels for label in best[:k]]
        discounts = 1 / np.log2(np.arange(2, k + 2))
        precision.append(sum(hits) / k)
        recall.append(sum(hits) / len(labels))
        gain.append(np.dot(hits, discounts[: len(hits)]) / discounts[: min(k, len(labels))].sum())
    return np.mean(precision), np.mean(recall), np.mean(gain)


def test_metrics_are_their_definitions():
    random = np.random.default_rng(3)
    truth = [random.choice(30, random.integers(0, 4), replace=False).tolist() for _ in range(200)]
    predicted = np.array([random.permutation(30)[:6] for _ in range(200)])
    for k in (1, 3, 6):
        expected = naive(truth, predicted, k)
        found = [
            metrics.precision_at_k(truth, predicted, k),
            metrics.recall_at_k(truth, predicted, k),
            metrics.ndcg_at_k(truth, predicted, k),
        ]
        assert found == pytest.approx(expected)
    columns = [label for labels in truth for label in labels]
    rows = np.repeat(np.arange(200), [len(labels) for labels in truth])
    matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(200, 30))
    assert metrics.measure(matrix, predicted) == metrics.measure(truth, predicted)
    names = [[f"{label:02}" for label in labels] for labels in truth]
    predicted_names = np.char.zfill(predicted.astype(str), 2)
    assert metrics.measure(names, predicted_names) == metrics.measure(truth, predicted)


def test_propensities_weigh_rare_labels_more():
    train = [0] * 90 + [1] * 10
    rare = metrics.psp_at_k([[0], [1]], [[1], [1]], train, 1)
    frequent = metrics.psp_at_k([[0], [1]], [[0], [0]], train, 1)
    n = np.array([90, 10])
    weights = 1 + (np.log(100) - 1) * 2.5**0.55 * (n + 1.5) ** -0.55
    assert rare == pytest.approx(weights[1] / weights.sum())
    assert frequent == pytest.approx(weights[0] / weights.sum())


def test_wrong_predictions_are_refused():
    for truth, predicted, message in [
        ([[0]], [[1, 1]], "twice"),
        ([[0]], [[1], [2]], "2 rows"),
        ([["a"]], [[1]], "both be names"),
        ([[0]], [[[1]]], "3 dimensions"),
    ]:
        with pytest.raises(ValueError, match=message):
            metrics.measure(truth, predicted)


@pytest.mark.parametrize("packed", [True, False])
def test_data_survives_the_disk(generated, tmp_path, packed):
    train, _ = generated
    datasets.save(tmp_path / "data", *train, packed=packed)
    loaded = datasets.load(tmp_path / "data")
    for one, other in zip(loaded, train, strict=True):
        assert one.shape == other.shape
        assert (one != other).nnz == 0
    assert loaded.X.dtype == np.float32
    with pytest.raises(ValueError, match="feature"):
        datasets.load(tmp_path / "data", num_features=3)


def test_bad_rows_are_named_or_left_out(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_text("0 1:1\n0 1:x\n1 2:2\n")
    with pytest.raises(ValueError, match=r"bad\.txt.*2"):
        datasets.load(path)
    with pytest.warns(UserWarning, match="1 bad rows"):
        assert datasets.load(path, skip_bad_rows=True).X.shape == (2, 3)
    with pytest.raises(FileNotFoundError, match="nothing"):
        datasets.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="class ids"):
        datasets.save(path, np.eye(2), ["a", "b"])


def test_bad_rows_of_texts_are_left_out_too(tmp_path):
    path = tmp_path / "bad.tsv"
    path.write_bytes(b"red\tx\nblue\nM\xfcnchen\ty\ngreen\ty\n")
    # Whether it is text at all is looked at first.
    with pytest.raises(ValueError, match="bad.tsv:3:2: byte 0xfc is not UTF-8"):
        datasets.load_texts(path)
    with pytest.warns(UserWarning, match="2 bad rows left out, .*bad.tsv:2: .*bad.tsv:3:2: "):
        loaded = datasets.load_texts(path, skip_bad_rows=True)
    assert loaded == (["red", "green"], [["x"], ["y"]])


TEXTS = ["München, Isar", 'the "Alps"', "wien"]
NAMES = [["Bavaria", "Munich"], ["Alps"], []]


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ('München, Isar\tBavaria|Munich\nthe "Alps"\tAlps\nwien\t\n', {}),
        ('labels,text\nBavaria|Munich,"München, Isar"\nAlps,"the ""Alps"""\n,wien\n', {}),
        (
            'München, Isar\t-\tBavaria+Munich\nthe "Alps"\t-\tAlps\nwien\t-\t\n',
            {"labels": 3, "label_separator": "+"},
        ),
        (
            '{"t": "München, Isar", "n": ["Bavaria", "Munich"]}\n{"t": "the \\"Alps\\"", "n": "Alps"}\n'
            '{"t": "wien", "n": []}\n',
            {"text": "t", "labels": "n"},
        ),
        (
            '#Bavaria #Munich München, Isar\n#Alps the "Alps"\nwien\n',
            {"format": "fasttext", "label_prefix": "#"},
        ),
    ],
    ids=["tsv", "csv", "columns", "json-lines", "fasttext"],
)
def test_files_of_texts_tell_the_same_story(tmp_path, content, options):
    plain, packed = tmp_path / "texts", tmp_path / "texts.gz"
    plain.write_text(content, encoding="utf-8")
    packed.write_bytes(gzip.compress(content.encode()))
    for path in (plain, packed):
        assert datasets.load_texts(path, **options) == (TEXTS, NAMES)


def test_files_of_texts_to_predict_and_broken_ones(tmp_path):
    path = tmp_path / "texts"
    path.write_text("one\ntwo, three\n")
    assert datasets.load_texts(path, format="lines", with_labels=False).X == ["one", "two, three"]
    path.write_text('a\tb\n"c\td\n')
    with pytest.raises(ValueError, match=r"texts.*2"):
        datasets.load_texts(path)
    for options, message in [
        ({"format": "xml"}, "xml"),
        ({"text": 0}, "numbered from 1"),
        ({"text": "t"}, "t"),
    ]:
        with pytest.raises(ValueError, match=message):
            datasets.load_texts(path, **options)
    with pytest.raises(FileNotFoundError, match="nothing"):
        datasets.load_texts(tmp_path / "nothing")


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_matrix_with_a_file_of_labels(tmp_path, dtype):
    vectors = np.random.default_rng(0).normal(size=(3, 5)).astype(dtype)
    vectors[1, 2] = 0
    np.save(tmp_path / "vectors.npy", vectors)
    (tmp_path / "labels").write_text("b;a\n\nc\n")
    X, y = datasets.load_matrix(tmp_path / "vectors.npy", tmp_path / "labels", label_separator=";")
    np.testing.assert_array_equal(X.toarray(), vectors)
    assert y == [["a", "b"], [], ["c"]]
    (tmp_path / "labels").write_text("a\n")
    with pytest.raises(ValueError, match="3"):
        datasets.load_matrix(tmp_path / "vectors.npy", tmp_path / "labels")
    with pytest.raises(FileNotFoundError):
        datasets.load_matrix(tmp_path / "nothing.npy", tmp_path / "labels")


def test_generated_data_is_the_same_for_the_same_seed():
    first, second, other = (
        datasets.make_classification(50, features=80, train=100, test=5, random_state=seed)[0].X
        for seed in (1, 1, 2)
    )
    assert (first != second).nnz == 0
    assert (first != other).nnz > 0
    with pytest.raises(ValueError, match="noise"):
        datasets.make_classification(noise=2.0)
    texts, names = datasets.misspelt_cities(20)
    assert len(set(names)) > 250
    assert datasets.misspelt_cities(20) == (texts, names)
    assert np.mean([text != name for text, name in zip(texts, names, strict=True)]) > 0.9
