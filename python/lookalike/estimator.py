"""The classifier, with scikit-learn's manners."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from lookalike import _features, _labels, _native, _saving, _weights
from lookalike._progress import InterruptedTraining, Progress
from lookalike._settings import merged, training_settings

if TYPE_CHECKING:
    from typing_extensions import Self

    from lookalike._native import Features, RunOptions
    from lookalike._sklearn_types import BaseEstimator, ClassifierMixin
else:
    from sklearn.base import BaseEstimator, ClassifierMixin

_MATRIX_ELEMENTS_MAX = 1 << 31
# Parameters that are no settings of the library by the same name; all others are.
_NO_SETTINGS = ("random_state", "preset", "settings", "text", "threads", "verbose", "class_weight")
# Examples, classes, feature values and labels of data of which nothing is known yet.
_ANY_DATA = (1, 2, 1, 1)
# What `fit` is told about watching a run, where nobody watches.
_NOT_WATCHED = (None, 1, None, None, (1,))


class ExtremeClassifier(ClassifierMixin, BaseEstimator):
    """A softmax classifier for 10^4 to 10^8 classes, trained on CPUs.

    For each example only the classes that look alike are scored: its true labels
    and the negatives that `sampler` proposes. The same data, settings and
    `random_state` give the same bits, whatever the number of threads, in Python
    and from the command line.

    With nothing set it trains what `lookalike train` trains, byte for byte: the data
    decides (`preset="auto"`). A parameter that is `None` has the default of the command
    line; see `lookalike train --help`.

    Parameters
    ----------
    sampler
        Who proposes negatives: `lsh-embedding`, `lsh-label`, `mixed`, `full`,
        `top-k`, `log-uniform`, `frequency`, `uniform` or `nce`.
    hidden
        Width of the hidden layer, or of several.
    epochs, batch, lr
        Passes over the data, examples a step, learning rate.
    budget
        Negatives an example.
    members
        Members of the committee that the last hidden layer is divided among, each with a
        loss of its own; their mean answers. A member needs a multiple of 16 numbers, so of
        a narrow layer there are fewer, and with `full` there is one.
    random_state
        The seed. `None` is a fixed seed too: nothing is ever random by the clock.
    preset
        Settings to start from. `None` is `"auto"`, the command line's default, which
        looks at the size of the data; `partial_fit`, which does not know it, starts
        from `"plain"`, the network alone. Others are `"paper"`, `"amazon-670k"`, ….
    sparse
        Whether classes have sparse weights on the features of their own examples,
        beside the network: `True`, `False`, or settings such as `{"epochs": 3}`.
    settings
        All other settings by the names they have in the command line's
        configuration file, for example `{"lsh": {"k": 5}, "lr-schedule": "linear"}`.
    class_weight
        How much the examples of classes count, as `{class: weight}` (others count 1), or
        `"balanced"`: in inverse proportion to how many they are. An example of several
        classes counts the mean of theirs.
    text
        How texts become features, for example `{"characters": {"min": 3, "max": 5}}`.
    threads
        Threads to use; `None` for all cores.
    verbose
        Whether to show a progress bar; `None` shows it in terminals and notebooks.

    Attributes
    ----------
    classes_ : ndarray
        The classes, sorted; those that `partial_fit` or `add_classes` met later stand behind.
    history_ : list of dict
        Loss and metrics, an entry an epoch. Metrics are shares of one.
    n_features_in_ : int
        The number of features.

    Examples
    --------
    >>> from lookalike import ExtremeClassifier
    >>> texts = ["red apple", "green apple", "red brick", "grey brick"] * 5
    >>> labels = [["apple", "red"], ["apple"], ["brick", "red"], ["brick"]] * 5
    >>> model = ExtremeClassifier(epochs=40, lr=0.01, random_state=3).fit(texts, labels)
    >>> model.classes_.tolist()
    ['apple', 'brick', 'red']
    >>> sorted(model.predict(["red apple"], k=2)[0].tolist())
    ['apple', 'red']
    >>> model.score(texts, labels)
    1.0
    """

    classes_: NDArray[Any]
    history_: list[dict[str, Any]]
    n_features_in_: int
    settings_: dict[str, Any]
    _model: _native.Model
    _vectoriser: _native.Vectoriser | None

    def __init__(
        self,
        sampler: str | None = None,
        *,
        hidden: int | Sequence[int] | None = None,
        epochs: int | None = None,
        batch: int | None = None,
        lr: float | None = None,
        budget: int | None = None,
        members: int | None = None,
        random_state: int | None = None,
        preset: str | None = None,
        sparse: bool | Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        text: Mapping[str, Any] | None = None,
        threads: int | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.sampler = sampler
        self.hidden = hidden
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.budget = budget
        self.members = members
        self.random_state = random_state
        self.preset = preset
        self.sparse = sparse
        self.settings = settings
        self.class_weight = class_weight
        self.text = text
        self.threads = threads
        self.verbose = verbose

    # Settings

    def settings_in_use(self) -> dict[str, Any]:
        """All settings of training: defaults, preset, and what was given.

        After `fit` they are those of the model. Before it, what the data will decide
        (epochs, batch, budget, sparse weights, calibration) is as in the preset
        `"plain"`; with `preset="auto"` asked for by name there are none.

        >>> ExtremeClassifier("lsh-label", hidden=64).settings_in_use()["hidden"]
        [64]
        """
        return self.settings_ if hasattr(self, "settings_") else self._settings_for(None)

    def _settings_for(self, size: tuple[int, int, int, int] | None) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        given = {name: value for name, value in parameters.items() if name not in _NO_SETTINGS}
        given["seed"] = self.random_state
        # A model that goes on has what the data decided when it was fitted.
        fitted = getattr(self, "settings_", None)
        preset = "auto" if self.preset is None and size is not None else self.preset
        return training_settings(preset, self.settings, given, size, fitted)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        return tags

    # Training

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: tuple[Any, Any] | None = None,
        eval_every: int = 1,
        patience: int | None = None,
        time_limit: float | None = None,
        k: Sequence[int] = (1, 3, 5),
    ) -> Self:
        """Trains a new model.

        Ctrl-C ends the training and keeps the model trained so far, with an
        `InterruptedTraining` warning. A call that fails leaves the model as it was.

        Parameters
        ----------
        X
            A sparse matrix (of float32 in CSR form: not copied), a NumPy array,
            or a list of texts.
        y
            A sparse matrix or a two-dimensional array with a column a class, a
            list of lists of ids or names, or a label an example.
        sample_weight
            How much each example counts: 2 moves the model twice as far, 0 leaves the
            example out. Metrics do not look at it.
        eval_set
            `(X, y)` to measure on every `eval_every` epochs; see `history_`.
        patience
            Stop after so many evaluations without a better P@k (the smallest
            k), and keep the best model. `partial_fit` then starts with a fresh
            optimizer, unless the last model was the best.
        time_limit
            Stop after so many seconds of training.
        k
            The k of P@k, nDCG@k and the others.
        """
        before = dict(self.__dict__)
        self._forget()
        try:
            self._train(X, y, sample_weight, None, (eval_set, eval_every, patience, time_limit, k))
        except BaseException:
            # What was fitted before is worth more than half of something new.
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Trains for one pass over some examples; the next call goes on.

        The first call has to know `classes`, unless `y` is a matrix with a column a
        class. Later calls may bring classes never seen, in `y` or announced in
        `classes`: `classes_` grows, and the old ones keep their places. Show old
        examples too, or old classes are forgotten. Texts get their features from the
        first call's texts.
        The learning rate stays: a schedule needs an end to fall towards.
        Hash tables are built anew in each call, so give it many examples.
        A call that fails leaves the model as it was: it works on a copy.

        >>> model = ExtremeClassifier(lr=0.01, settings={"normalise": "none"})
        >>> for _ in range(30):
        ...     model = model.partial_fit([[0.0, 1.0], [1.0, 0.0]] * 8, [3, 7] * 8, classes=[3, 7, 9])
        >>> model.predict([[0.0, 2.0]]).tolist()
        [3]
        """
        settings = {**self._settings_for(None), "lr-schedule": "constant"}
        if not self.__sklearn_is_fitted__():
            if classes is None and not _labels.is_matrix(_labels.as_array(y)):
                raise ValueError("the first call of partial_fit needs classes: all labels there will be")
            self._train(X, y, sample_weight, classes, None, settings={**settings, "epochs": 1})
            return self
        features = self._features(X, reset=False)
        known = _labels.grown(y, self.classes_, classes)
        labels = self._known_labels(y, known, len(features[0]) - 1)
        weights = _weights.of_examples(sample_weight, self.class_weight, labels, known)
        progress = Progress(self.verbose)
        try:
            outcome = self._model.resume(
                features, labels, weights, json.dumps(settings), self._options(progress, None)
            )
        finally:
            entries = progress.close()
        self.history_ = [*self.history_, *entries]
        self._set_classes(known)
        self._warn_if_interrupted(outcome)
        return self

    # Classes

    def add_classes(self, classes: Any) -> Self:
        """Adds classes that have no examples yet, at the end of `classes_`.

        >>> model = ExtremeClassifier(epochs=2).fit(["a cat", "a dog"] * 9, ["cat", "dog"] * 9)
        >>> model.add_classes(["yak"]).classes_.tolist()
        ['cat', 'dog', 'yak']
        """
        check_is_fitted(self)
        known = _labels.grown(np.asarray(classes), self.classes_)
        self._model.add_classes(len(known) - len(self.classes_))
        self._set_classes(known)
        return self

    def remove_classes(self, classes: Any) -> Self:
        """Removes classes. What the others score stays as it is, but for nearest examples."""
        check_is_fitted(self)
        removed = self._places(classes)
        self._model.remove_classes(removed)
        self._set_classes(np.delete(self.classes_, removed))
        return self

    def rename_classes(self, names: Mapping[Any, Any]) -> Self:
        """Gives classes other names: `{old: new}`.

        >>> model = ExtremeClassifier(epochs=2).fit(["a cat", "a dog"] * 9, ["cat", "dog"] * 9)
        >>> model.rename_classes({"cat": "Katze"}).classes_.tolist()
        ['Katze', 'dog']
        """
        check_is_fitted(self)
        places = self._places(list(names))
        new = np.asarray(list(names.values()))
        _labels.check_type(new, self.classes_)
        renamed = self.classes_.astype(np.result_type(self.classes_.dtype, new.dtype))
        renamed[places] = new
        unique, counts = np.unique(renamed, return_counts=True)
        if len(unique) < len(renamed):
            raise ValueError(f"{unique[counts > 1][0]!r} would be the name of two classes")
        self._set_classes(renamed)
        return self

    def _places(self, classes: Any) -> NDArray[np.int64]:
        wanted = np.asarray(classes)
        if wanted.ndim != 1:
            raise ValueError("classes must be a list of classes")
        places = _labels.places_of(wanted, self.classes_)
        if (places < 0).any():
            unknown = wanted[places < 0][0]
            raise ValueError(f"{unknown!r} is none of the classes that the model was trained with")
        return places.astype(np.int64)

    def _set_classes(self, classes: NDArray[Any]) -> None:
        self.classes_ = classes
        names = [str(label) for label in classes]
        if all(names) and (self._model.class_names() is not None or not _labels.are_numbers(classes)):
            self._model.set_names(names)

    def _train(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        classes: Any,
        watching: tuple[tuple[Any, Any] | None, int, int | None, float | None, Sequence[int]] | None,
        settings: dict[str, Any] | None = None,
    ) -> None:
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None"
            )
        y = _labels.as_array(y)
        if settings is None and self.preset not in (None, "auto"):
            settings = self._settings_for(None)
        self._check_run(settings or self._settings_for(_ANY_DATA), watching)
        features = self._features(X, reset=True)
        examples = len(features[0]) - 1
        if _labels.num_examples(y) != examples:
            raise ValueError(f"X has {examples} examples, but y has labels of {_labels.num_examples(y)}")
        known = _labels.classes_of(y) if classes is None else np.unique(np.asarray(classes))
        if len(known) < 2:
            raise ValueError(
                f"y holds {len(known)} class, but a classifier needs 2 classes or more to tell apart"
            )
        self.classes_ = known
        labels = self._known_labels(y, known, examples)
        weights = _weights.of_examples(sample_weight, self.class_weight, labels, known)
        if settings is None:
            settings = self._settings_for((examples, len(known), len(features[1]), len(labels[1])))
        self.settings_ = settings
        progress = Progress(self.verbose)
        try:
            self._model, outcome = _native.Model.train(
                features, labels, weights, json.dumps(settings), self._options(progress, watching)
            )
        finally:
            self.history_ = progress.close()
        if self._vectoriser is not None:
            self._model.set_text(self._vectoriser, [str(label) for label in known])
        self._set_classes(known)
        self._warn_if_interrupted(outcome)

    @staticmethod
    def _check_run(settings: dict[str, Any], watching: Any) -> None:
        """What means nothing is said before texts become features."""
        eval_set, _, patience, time_limit, k = watching or _NOT_WATCHED
        if patience is not None and eval_set is None:
            raise ValueError("patience needs an eval_set to look at")
        for warning in _native.check_run(json.dumps(settings), _metrics_at(k), time_limit):
            warnings.warn(warning, stacklevel=4)

    def _options(self, progress: Progress, watching: Any) -> RunOptions:
        eval_set, every, patience, time_limit, k = watching or _NOT_WATCHED
        validation = None
        if eval_set is not None:
            features = self._features(eval_set[0], reset=False)
            encoded = _labels.encode(eval_set[1], self.classes_)
            _check_lengths(features, encoded)
            validation = (features, *encoded)
        return {
            "threads": self.threads,
            "callback": progress,
            "validation": validation,
            "every_epochs": every,
            "metrics": _metrics_at(k),
            "patience": patience,
            "time_limit": time_limit,
        }

    def _warn_if_interrupted(self, outcome: str) -> None:
        if outcome == "interrupted":
            done = self.history_[-1]["step"] if self.history_ else 0
            warnings.warn(
                InterruptedTraining(f"training was interrupted; the model of step {done} was kept"),
                stacklevel=4,
            )

    def _forget(self) -> None:
        learnt = ("_model", "_vectoriser", "classes_", "history_", "settings_")
        for name in (*learnt, "n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)

    # Input

    def _features(self, X: Any, reset: bool) -> Features:
        texts = _features.as_texts(X)
        vectoriser = None if reset else self._vectoriser
        if texts is not None and reset:
            options = json.dumps(merged(json.loads(_native.text_settings()), self.text))
            self._vectoriser, features = _native.Vectoriser.fit(texts, options, self.threads)
            self.n_features_in_ = features[3]
            return features
        if texts is not None:
            if vectoriser is None:
                raise ValueError("X holds texts, but the model was trained on a matrix of features")
            return vectoriser.transform(texts, self.threads)
        if reset:
            self._vectoriser = None
        matrix = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=np.float32, ensure_min_samples=1
        )
        return _features.rows(matrix)

    def _known_labels(self, y: Any, classes: NDArray[Any], examples: int) -> _native.Labels:
        encoded = _labels.encode(y, classes)
        if len(encoded.unknown) != examples:
            raise ValueError(f"X has {examples} examples, but y has labels of {len(encoded.unknown)}")
        if encoded.unknown.any():
            example = int(np.flatnonzero(encoded.unknown)[0])
            raise ValueError(f"example {example} of y has a label that is not among the classes")
        return encoded.labels

    # Prediction

    def top_k(
        self, X: Any, k: int = 5, *, search: str = "exact", effort: int | None = None
    ) -> tuple[NDArray[Any], NDArray[np.float32]]:
        """The best `k` classes of each example, best first, and their probabilities.

        Probabilities are calibrated on examples that a model has not seen: of the answers
        given 0.8, four in five are right. Models of few examples (below 20), of
        presets other than `"auto"` and of early versions are not calibrated:
        `is_calibrated` tells. Their probabilities are a softmax, and too sure.

        `search="fast"` scores only the classes that the model's index finds, about
        `effort` of them (by default as many as training chose). What is found has the
        score of an exact search; models of few classes have no index and search exactly.

        >>> model = ExtremeClassifier(epochs=40, lr=0.01).fit(["a cat", "a dog"] * 9, ["cat", "dog"] * 9)
        >>> classes, probabilities = model.top_k(["cat"], k=2)
        >>> classes.tolist(), bool(probabilities[0, 0] > 0.5)
        ([['cat', 'dog']], True)
        """
        check_is_fitted(self)
        ids, probabilities = self._model.predict(
            self._features(X, reset=False), k, True, self.threads, (search, effort)
        )
        return self.classes_[ids], probabilities

    @property
    def is_calibrated(self) -> bool:
        """Whether probabilities mean what they say."""
        check_is_fitted(self)
        return self._calibration() is not None

    def _calibration(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = json.loads(self._model.describe()).get("calibration")
        return found

    @overload
    def predict(
        self, X: Any, k: int | None = None, *, search: str = "exact", effort: int | None = None
    ) -> NDArray[Any]: ...
    @overload
    def predict(
        self,
        X: Any,
        k: int | None = None,
        *,
        threshold: float,
        search: str = "exact",
        effort: int | None = None,
    ) -> list[NDArray[Any]]: ...
    def predict(
        self,
        X: Any,
        k: int | None = None,
        *,
        threshold: float | None = None,
        search: str = "exact",
        effort: int | None = None,
    ) -> NDArray[Any] | list[NDArray[Any]]:
        """The best class of each example, or with `k` the best `k`, a row an example.

        With `threshold` a list: of each example the classes (of the best `k`, or 100)
        whose probability is at least so much, best first, perhaps none. `search` and
        `effort` are those of `top_k`.
        """
        check_is_fitted(self)
        if threshold is not None:
            if not 0 <= threshold <= 1:
                raise ValueError(f"threshold is {threshold!r}, but must be a probability, from 0 to 1")
            count = min(k or 100, len(self.classes_))
            best, probabilities = self.top_k(X, count, search=search, effort=effort)
            pairs = zip(best, probabilities, strict=True)
            return [row[of_row >= threshold] for row, of_row in pairs]
        features = self._features(X, reset=False)
        ids, _ = self._model.predict(features, 1 if k is None else k, False, self.threads, (search, effort))
        classes: NDArray[Any] = self.classes_[ids]
        return classes[:, 0] if k is None else classes

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class. For many classes use `top_k`.

        Trained on one label an example, a row adds up to one; on several, each is the
        probability that the class is among the labels. See `top_k` for what they mean.
        """
        check_is_fitted(self)
        features = self._features(X, reset=False)
        self._check_size(features, len(self.classes_))
        ids, found = self._model.predict(features, len(self.classes_), True, self.threads)
        probabilities = np.zeros(ids.shape)
        np.put_along_axis(probabilities, ids, found.astype(np.float64), axis=1)
        calibration = self._calibration()
        if calibration is None or calibration["labels"] == "one":
            probabilities /= probabilities.sum(axis=1, keepdims=True)
        return probabilities

    def decision_function(self, X: Any, classes: Any = None) -> NDArray[np.float32]:
        """Scores (logits) of chosen classes, or of all: a column a class.

        As in scikit-learn, two classes in all have one column: how much the
        second one scores above the first.

        >>> model = ExtremeClassifier(epochs=40, lr=0.01).fit(["a cat", "a dog"] * 9, ["cat", "dog"] * 9)
        >>> model.decision_function(["cat", "dog"], classes=["dog"]).shape
        (2, 1)
        """
        check_is_fitted(self)
        features = self._features(X, reset=False)
        ids = np.arange(len(self.classes_)) if classes is None else self._places(classes)
        self._check_size(features, len(ids))
        scores = self._model.scores(features, ids, self.threads)
        return scores[:, 1] - scores[:, 0] if classes is None and len(ids) == 2 else scores

    def embed(self, X: Any) -> NDArray[np.float32]:
        """The hidden activation of each example: what class vectors are compared with."""
        check_is_fitted(self)
        return self._model.embed(self._features(X, reset=False), self.threads)

    def evaluate(
        self,
        X: Any,
        y: Any,
        k: Sequence[int] = (1, 3, 5),
        *,
        search: str = "exact",
        effort: int | None = None,
        **options: Any,
    ) -> dict[str, float]:
        """All metrics at each `k`, as shares of one: exact, over all classes.

        With `search="fast"` the share of exact answers' classes that were found is
        `"recall of search"`.

        `options` are `propensity_a`, `propensity_b` and `tail_examples_max`.
        Labels that the model does not know count as never found.
        """
        check_is_fitted(self)
        features = self._features(X, reset=False)
        encoded = _labels.encode(y, self.classes_)
        _check_lengths(features, encoded)
        settings = json.dumps(merged(json.loads(_native.metric_settings()), {"k": list(k), **options}))
        found = self._model.evaluate(
            features, encoded.labels, encoded.unknown, settings, self.threads, (search, effort)
        )
        return {name: value for name, value in found.items() if value is not None}

    def score(self, X: Any, y: Any) -> float:
        """The share of examples whose best class is one of their labels (P@1)."""
        return self.evaluate(X, y, k=(1,)).get("P@1", float("nan"))

    def _check_size(self, features: Features, columns: int) -> None:
        if (len(features[0]) - 1) * columns > _MATRIX_ELEMENTS_MAX:
            raise ValueError(
                f"{len(features[0]) - 1} examples × {columns} classes are too many for one matrix: "
                "use top_k, or name the classes you need in decision_function"
            )

    # Weights and files

    def to_numpy(self) -> dict[str, NDArray[Any]]:
        """Copies of all parameters, by the names they have in `model.safetensors`.

        `input.weight` is features × hidden, `output.weight` classes × hidden. A
        model with a sparse part has `sparse.lengths`, the number of weights of
        each class, and their `sparse.features` and `sparse.weights`, class after
        class; and, not in that file because it follows from the class counts,
        `sparse.priors`, what each class's frequency adds to its sparse score.
        """
        check_is_fitted(self)
        return self._model.tensors()

    def save(self, directory: str | PathLike[str], *, with_training_state: bool = True) -> None:
        """Writes a model directory, which the command line can use too.

        Without the training state it is a third of the size, and `partial_fit`
        starts with a fresh optimizer. The best model that `patience` went back to
        has none.
        """
        check_is_fitted(self)
        _saving.write(
            directory, self._model, self.classes_, self.get_params(), self.history_, with_training_state
        )

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> Self:
        """Reads a model directory, written by `save` or by the command line."""
        saved = _saving.read(directory)
        described = json.loads(saved.model.describe())
        # What a model's settings leave out is as in `"plain"`, whatever data it is fitted to.
        made_elsewhere = {"preset": "plain", "settings": described["training"]}
        estimator = cls(**(made_elsewhere if saved.parameters is None else saved.parameters))
        estimator.classes_ = saved.classes
        estimator.history_ = saved.history
        estimator.settings_ = described["training"]
        estimator._model = saved.model
        estimator._vectoriser = saved.model.vectoriser()
        estimator.n_features_in_ = described["network"]["num-features"]
        return estimator

    def __sklearn_is_fitted__(self) -> bool:
        return "_model" in self.__dict__

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "_model" in state:
            state["_model"] = _saving.to_files(state["_model"])
            state.pop("_vectoriser")
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        if "_model" in state:
            state["_model"] = _saving.from_files(state["_model"])
            state["_vectoriser"] = state["_model"].vectoriser()
        super().__setstate__(state)


def _metrics_at(k: Sequence[int]) -> str:
    return json.dumps(merged(json.loads(_native.metric_settings()), {"k": list(k)}))


def _check_lengths(features: Features, encoded: _labels.Encoded) -> None:
    if len(features[0]) - 1 != len(encoded.unknown):
        raise ValueError(f"X has {len(features[0]) - 1} examples, but y has labels of {len(encoded.unknown)}")
