"""Model directories: Python and the command line read and write the same ones."""

from __future__ import annotations

import json
import pickle
import subprocess

import numpy as np
import pytest

from lookalike import ExtremeClassifier, datasets

SETTINGS = {"preset": "plain", "hidden": 24, "epochs": 2, "batch": 100, "budget": 30, "random_state": 11}
FLAGS = ["--preset", "plain", "--hidden=24", "--epochs=2", "--batch=100", "--budget=30", "--seed=11"]


def run(command, *arguments):
    result = subprocess.run([command, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(
    ("sampler", "more", "flags"),
    [(sampler, {}, []) for sampler in ("lsh-embedding", "lsh-label", "mixed", "full", "frequency")]
    + [
        ("lsh-embedding", {"sparse": True}, ["--sparse=true"]),
        (
            "full",
            {"sparse": {"epochs": 1, "rate": 2.0}},
            ["--sparse=true", "--sparse-epochs=1", "--sparse-lr=2"],
        ),
        ("mixed", {"settings": {"sparse": {"negatives": 9}}}, ["--sparse=true", "--sparse-negatives=9"]),
        ("mixed", {"settings": {"sparse": {"negatives": 9}}, "sparse": False}, ["--sparse=false"]),
        # A second layer, behind that of all cases.
        ("lsh-label", {"hidden": (24, 48), "members": 3}, ["--hidden=48", "--members=3"]),
    ],
)
def test_the_command_line_gives_the_same_bytes(generated, command, tmp_path, sampler, more, flags):
    train, _ = generated
    datasets.save(tmp_path / "train.txt", *train)
    arguments = ["train", tmp_path / "train.txt", "--model", tmp_path / "theirs", "--sampler", sampler]
    run(command, *arguments, *FLAGS, *flags)
    model = ExtremeClassifier(sampler, **{**SETTINGS, **more}, threads=1).fit(train.X, train.Y)
    model.save(tmp_path / "ours")
    for name in ("model.safetensors", "training.safetensors"):
        ours, theirs = ((tmp_path / folder / name).read_bytes() for folder in ("ours", "theirs"))
        assert ours == theirs, name
    configs = (tmp_path / folder / "config.json" for folder in ("ours", "theirs"))
    ours, theirs = (json.loads(config.read_text()) for config in configs)
    assert (ours["network"], ours["training"]) == (theirs["network"], theirs["training"])


def same_files(ours, theirs):
    """All files of two model directories, but for the time that training took."""
    names = {path.name for path in theirs.iterdir()}
    assert names <= {path.name for path in ours.iterdir()}
    for name in names - {"config.json"}:
        assert (ours / name).read_bytes() == (theirs / name).read_bytes(), name
    configs = (json.loads((folder / "config.json").read_text()) for folder in (ours, theirs))
    without_time = (
        {key: config[key] for key in config if key not in ("progress", "checksum")} for config in configs
    )
    assert next(without_time) == next(without_time)
    return names


@pytest.mark.parametrize("sampler", ["lsh-embedding", "full"])
def test_a_file_of_texts_and_a_list_of_texts_give_the_same_bytes(command, tmp_path, sampler):
    texts, names = datasets.misspelt_cities(6, cities=60)
    labels = [[name, name[0].lower()] for name in names]
    lines = [f"{text}\t{'|'.join(names)}\n" for text, names in zip(texts, labels, strict=True)]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    train = ["train", tmp_path / "train.tsv", "--model", tmp_path / "theirs", "--sampler", sampler]
    run(command, *train, *FLAGS)
    for name, (X, y) in {
        "list": (texts, labels),
        "file": datasets.load_texts(tmp_path / "train.tsv"),
    }.items():
        ExtremeClassifier(sampler, **SETTINGS, threads=1).fit(X, y).save(tmp_path / name)
        assert {"model.safetensors", "training.safetensors"} < same_files(
            tmp_path / name, tmp_path / "theirs"
        )


def test_with_nothing_set_both_train_the_same_model(command, tmp_path):
    texts, names = datasets.misspelt_cities(8, cities=60)
    lines = [f"{text}\t{name}\n" for text, name in zip(texts, names, strict=True)]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    run(command, "train", tmp_path / "train.tsv", "--model", tmp_path / "theirs")
    model = ExtremeClassifier().fit(texts, names)
    model.save(tmp_path / "ours")
    same_files(tmp_path / "ours", tmp_path / "theirs")
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert config["training"]["sparse"] is not None or config["training"]["calibrate"]
    assert model.is_calibrated
    assert config["calibration"]["labels"] == "one"


def test_a_matrix_of_embeddings_gives_the_same_bytes(command, tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "vectors.npy", random.normal(size=(300, 12)).astype(np.float32))
    (tmp_path / "labels.txt").write_text(
        "".join(f"class {label}\n" for label in random.integers(20, size=300))
    )
    files = [tmp_path / "vectors.npy", "--labels-file", tmp_path / "labels.txt"]
    run(command, "train", *files, "--model", tmp_path / "theirs", "--sampler", "uniform", *FLAGS)
    X, y = datasets.load_matrix(tmp_path / "vectors.npy", tmp_path / "labels.txt")
    ExtremeClassifier("uniform", **SETTINGS).fit(X, y).save(tmp_path / "ours")
    for name in ("model.safetensors", "training.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def test_each_reads_what_the_other_wrote(generated, command, tmp_path):
    train, test = generated
    datasets.save(tmp_path / "train.txt", *train)
    datasets.save(tmp_path / "test.txt", *test)
    model = ExtremeClassifier("full", **SETTINGS).fit(train.X, train.Y)
    model.save(tmp_path / "ours")
    answer = json.loads(run(command, "evaluate", tmp_path / "ours", tmp_path / "test.txt", "--json"))
    ours = model.evaluate(test.X, test.Y)
    assert {name: answer[name] / 100 for name in ours} == pytest.approx(ours)
    lines = run(command, "predict", tmp_path / "ours", tmp_path / "test.txt", "--top-k", 3).splitlines()
    assert [[int(x) for x in line.split("\t")[::2]] for line in lines] == model.predict(test.X, k=3).tolist()

    run(command, "train", tmp_path / "train.txt", "--model", tmp_path / "theirs", *FLAGS)
    loaded = ExtremeClassifier.load(tmp_path / "theirs")
    assert loaded.settings_in_use()["seed"] == 11
    assert loaded.classes_.tolist() == list(range(200))
    lines = run(command, "predict", tmp_path / "theirs", tmp_path / "test.txt", "--top-k", 1).splitlines()
    assert [int(line.split("\t")[0]) for line in lines] == loaded.predict(test.X).tolist()
    loaded.partial_fit(train.X, train.Y)
    assert json.loads(loaded._model.describe())["progress"]["epoch"] == 3

    # A model of the command line that is fitted again has its settings, not those of `auto`.
    again = ExtremeClassifier.load(tmp_path / "theirs").fit(train.X, train.Y)
    again.save(tmp_path / "again")
    same_files(tmp_path / "again", tmp_path / "theirs")


def largest(rows, count):
    """Which are the largest of each row; of equals, the first."""
    places = np.argsort(-rows, axis=1, kind="stable")[:, :count]
    is_largest = np.zeros(rows.shape, dtype=bool)
    np.put_along_axis(is_largest, places, True, axis=1)
    return is_largest & (rows > 0)


def nearest_examples(parts, examples):
    """What the training examples in a model say, by the formula of docs/method.md."""
    kept = np.zeros((len(parts["neighbours.lengths"]), examples.shape[1]))
    rows = np.repeat(np.arange(len(kept)), parts["neighbours.lengths"])
    kept[rows, parts["neighbours.features"]] = parts["neighbours.values"]
    # The 200 examples count that have most in common with the 24 strongest features.
    asked = examples * largest(np.abs(examples), 24)
    common = asked @ (kept * largest(np.abs(kept).T, 1000).T).T
    terms = np.expm1(30 * np.clip(examples @ kept.T, 0, 1)) * largest(common, 200)
    ends = np.cumsum(parts["neighbours.class_lengths"])
    members = np.split(parts["neighbours.members"], ends[:-1])
    return np.stack([np.log1p(terms[:, of_class].sum(axis=1)) for of_class in members], axis=1)


def same_scores_whatever_is_asked_for(model, X, scores):
    """All bits: among all classes or a few, alone or with others, by every method."""
    np.testing.assert_array_equal(model.decision_function(X, classes=[7, 3]), scores[:, [7, 3]])
    for k, rows in ((200, slice(None)), (3, slice(0, 1)), (7, slice(4, 13))):
        ids, found = model._model.predict(model._features(X[rows], reset=False), k, False, 1)
        np.testing.assert_array_equal(np.take_along_axis(scores[rows], ids, axis=1), found)
        np.testing.assert_array_equal(model.decision_function(X[rows]), scores[rows])
    alone = np.concatenate([model.predict_proba(X[row : row + 1]) for row in range(5)])
    np.testing.assert_array_equal(alone, model.predict_proba(X)[:5])


@pytest.mark.parametrize("storage", ["f32", "bf16"])
def test_a_score_does_not_depend_on_what_else_is_asked_for(generated, storage):
    train, test = generated
    model = ExtremeClassifier("uniform", **SETTINGS, settings={"storage": storage}).fit(train.X, train.Y)
    same_scores_whatever_is_asked_for(model, test.X, model.decision_function(test.X))


def test_a_model_with_a_sparse_part_predicts_and_is_saved_with_it(generated, tmp_path):
    train, test = generated
    # From a better start the network would need no examples, and keep none.
    settings = {"class-start": "random"}
    model = ExtremeClassifier("full", **SETTINGS, sparse=True, settings=settings).fit(train.X, train.Y)
    parts = model.to_numpy()
    entries = int(parts["sparse.lengths"].sum())
    assert len(parts["sparse.lengths"]) == 200
    assert entries == len(parts["sparse.features"]) == len(parts["sparse.weights"]) > 0
    blend = json.loads(model._model.describe())["sparse"]["blend"]
    assert blend > 0

    # What `predict` ranks by is what `decision_function` and the formula say.
    scores = model.decision_function(test.X)
    same_scores_whatever_is_asked_for(model, test.X, scores)
    weights = np.zeros((200, test.X.shape[1]))
    rows = np.repeat(np.arange(200), parts["sparse.lengths"])
    weights[rows, parts["sparse.features"]] = parts["sparse.weights"]
    examples = test.X.toarray() / np.linalg.norm(test.X.toarray(), axis=1, keepdims=True)
    dense = model.embed(test.X) @ parts["output.weight"].T + parts["output.bias"]
    near = nearest_examples(parts, examples)
    weight = json.loads(model._model.describe())["neighbours"]["weight"]
    assert weight > 0
    expected = dense + blend * (examples @ weights.T + parts["sparse.priors"]) + weight * near
    # Rounding decides which of two equally near examples is the last that counts.
    assert np.isclose(scores, expected, rtol=1e-3, atol=1e-3).mean() > 0.999

    model.save(tmp_path / "model")
    for other in (ExtremeClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert other.get_params() == model.get_params()
        np.testing.assert_array_equal(other.decision_function(test.X), scores)
        np.testing.assert_array_equal(other.predict(test.X, k=5), model.predict(test.X, k=5))
    without = ExtremeClassifier("full", **SETTINGS, sparse=False).fit(train.X, train.Y)
    assert not [name for name in without.to_numpy() if name.startswith("sparse.")]


@pytest.mark.parametrize("with_training_state", [True, False])
def test_a_saved_model_is_the_model(generated, tmp_path, with_training_state):
    train, test = generated
    model = ExtremeClassifier("uniform", **SETTINGS).fit(train.X, train.Y)
    model.save(tmp_path / "model", with_training_state=with_training_state)
    loaded = ExtremeClassifier.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    assert loaded.history_ == model.history_
    assert loaded.n_features_in_ == model.n_features_in_
    np.testing.assert_array_equal(loaded.decision_function(test.X), model.decision_function(test.X))
    for one in (model, loaded):
        one.partial_fit(train.X, train.Y)
    is_same = np.array_equal(*(one.to_numpy()["output.weight"] for one in (model, loaded)))
    assert is_same == with_training_state
    model.save(tmp_path / "model")  # replaces what is there


def test_a_model_that_was_best_before_the_end_has_no_training_state(generated, tmp_path):
    train, test = generated
    model = ExtremeClassifier("full", **{**SETTINGS, "epochs": 100}, lr=0.03)
    model.fit(train.X, train.Y, eval_set=(test.X, test.Y), patience=2, k=[1])
    scores = [entry["P@1"] for entry in model.history_]
    best = scores.index(max(scores))
    assert best < len(scores) - 1
    assert json.loads(model._model.describe())["progress"]["epoch"] == best + 1
    model.save(tmp_path / "model")
    assert not (tmp_path / "model" / "training.safetensors").exists()
    for other in (ExtremeClassifier.load(tmp_path / "model"), pickle.loads(pickle.dumps(model)), model):
        assert other.score(test.X, test.Y) == pytest.approx(max(scores))
        other.partial_fit(train.X, train.Y)
        assert json.loads(other._model.describe())["progress"]["epoch"] == best + 2
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "training.safetensors").exists(), "training went on and left its state"


def test_a_saved_text_model_takes_texts(tmp_path):
    texts, names = datasets.misspelt_cities(8, cities=20)
    numbers = [names.index(name) for name in names]
    for labels in (names, numbers):
        model = ExtremeClassifier("full", epochs=15, lr=0.01).fit(texts, labels)
        model.save(tmp_path / "model")
        loaded = ExtremeClassifier.load(tmp_path / "model")
        assert loaded.classes_.tolist() == model.classes_.tolist()
        assert loaded.predict(texts).tolist() == model.predict(texts).tolist()
    (tmp_path / "model" / "estimator.json").unlink()
    assert ExtremeClassifier.load(tmp_path / "model").classes_.dtype.kind == "U", "names are in the model too"


def test_labels_of_vectors_are_names_in_the_model(command, tmp_path):
    vectors = np.eye(3)[[0, 1, 2] * 6]
    model = ExtremeClassifier("full", preset="plain", epochs=60, lr=0.05)
    model.fit(vectors, ["ant", "bee", "cow"] * 6).save(tmp_path / "model")
    listed = run(command, "classes", "list", tmp_path / "model").splitlines()[-3:]
    assert [line.split()[1] for line in listed] == ["ant", "bee", "cow"]
    # What the command line does to a model does not lose its labels.
    run(command, "classes", "remove", tmp_path / "model", "bee")
    loaded = ExtremeClassifier.load(tmp_path / "model")
    assert loaded.classes_.tolist() == ["ant", "cow"]
    assert loaded.predict(vectors[[0, 2]]).tolist() == ["ant", "cow"]


@pytest.mark.parametrize("labels", [["x", "y"], [0, 1], [7, 9]])
def test_the_model_says_which_classes_there_are(tmp_path, labels):
    """A crash after the model was exchanged leaves the other model's file beside it."""
    vectors = np.eye(3)[[0, 1, 2] * 6]
    model = ExtremeClassifier("full", preset="plain", epochs=2)
    model.fit(vectors, ["ant", "bee", "cow"] * 6).save(tmp_path / "model")
    before = (tmp_path / "model" / "estimator.json").read_text()
    model.fit(vectors[:, :2], (labels * 9)).save(tmp_path / "model")
    assert ExtremeClassifier.load(tmp_path / "model").classes_.tolist() == labels
    (tmp_path / "model" / "estimator.json").write_text(before)
    assert ExtremeClassifier.load(tmp_path / "model").classes_.astype(str).tolist() == [*map(str, labels)]


def test_weights_are_those_of_the_safetensors_file(generated, tmp_path):
    train, _ = generated
    model = ExtremeClassifier("uniform", **SETTINGS, settings={"storage": "f32"}).fit(train.X, train.Y)
    model.save(tmp_path / "model")
    content = (tmp_path / "model" / "model.safetensors").read_bytes()
    header_bytes = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_bytes])
    weights = model.to_numpy()
    assert set(weights) <= set(header)
    for name, value in weights.items():
        start, end = (8 + header_bytes + offset for offset in header[name]["data_offsets"])
        stored = np.frombuffer(content[start:end], np.float32).reshape(header[name]["shape"])
        np.testing.assert_array_equal(value, stored)
