"""The native half of the package; use the modules around it instead."""

from collections.abc import Callable
from os import PathLike
from typing import Any, TypedDict, final

import numpy as np
from numpy.typing import NDArray

__version__: str

Features = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32], int]
"""`indptr`, `indices`, `data` and the number of columns of a sparse matrix."""

Labels = tuple[NDArray[np.int64], NDArray[np.int32], int]
"""`indptr`, `indices` and the number of classes."""

class RunOptions(TypedDict):
    threads: int | None
    callback: Callable[[dict[str, Any]], None] | None
    validation: tuple[Features, Labels, NDArray[np.uint32]] | None
    every_epochs: int
    metrics: str
    patience: int | None
    time_limit: float | None

@final
class Model:
    @staticmethod
    def train(
        features: Features,
        labels: Labels,
        weights: NDArray[np.float32] | None,
        settings: str,
        options: RunOptions,
    ) -> tuple[Model, str]: ...
    def resume(
        self,
        features: Features,
        labels: Labels,
        weights: NDArray[np.float32] | None,
        settings: str,
        options: RunOptions,
    ) -> str: ...
    @staticmethod
    def load(directory: str | PathLike[str], for_training: bool) -> Model: ...
    def save(self, directory: str | PathLike[str], with_training_state: bool) -> None: ...
    def describe(self) -> str: ...
    def predict(
        self,
        features: Features,
        k: int,
        probabilities: bool,
        threads: int | None,
        search: tuple[str, int | None] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]: ...
    def embed(self, features: Features, threads: int | None) -> NDArray[np.float32]: ...
    def evaluate(
        self,
        features: Features,
        labels: Labels,
        unknown_labels: NDArray[np.uint32],
        options: str,
        threads: int | None,
        search: tuple[str, int | None] | None = None,
    ) -> dict[str, float | None]: ...
    def tensors(self) -> dict[str, NDArray[Any]]: ...
    def scores(
        self, features: Features, classes: NDArray[np.int64], threads: int | None
    ) -> NDArray[np.float32]: ...
    def class_counts(self) -> NDArray[np.int64]: ...
    def class_names(self) -> list[str] | None: ...
    def add_classes(self, count: int) -> None: ...
    def remove_classes(self, classes: NDArray[np.int64]) -> None: ...
    def set_names(self, names: list[str]) -> None: ...
    def set_text(self, vectoriser: Vectoriser, names: list[str]) -> None: ...
    def vectoriser(self) -> Vectoriser | None: ...

@final
class Vectoriser:
    @staticmethod
    def fit(texts: list[str], options: str, threads: int | None) -> tuple[Vectoriser, Features]: ...
    def transform(self, texts: list[str], threads: int | None) -> Features: ...
    def feature_names(self) -> list[str]: ...

@final
class LshTables:
    def __new__(cls, dim: int, k: int, l: int, family: str, bin: int, codes: str, seed: int) -> LshTables: ...
    def build(self, weights: NDArray[np.float32], threads: int | None) -> None: ...
    def update(self, ids: NDArray[np.int64], weights: NDArray[np.float32], threads: int | None) -> None: ...
    def query(
        self, vectors: NDArray[np.float32], budget: int, iteration: int, threads: int | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]: ...
    def __len__(self) -> int: ...

@final
class Sampler:
    def __new__(cls, settings: str, dim: int, class_counts: NDArray[np.uint32]) -> Sampler: ...
    @property
    def uses_tables(self) -> bool: ...
    @property
    def corrects_log_q(self) -> bool: ...
    @property
    def budget(self) -> int: ...
    def is_due(self, iteration: int) -> bool: ...
    def class_log_q(self) -> NDArray[np.float32] | None: ...
    def refresh(
        self,
        class_vectors: NDArray[np.float32],
        changed: NDArray[np.int64] | None,
        threads: int | None,
    ) -> None: ...
    def propose(
        self,
        iteration: int,
        embeddings: NDArray[np.float32],
        labels: Labels,
        class_vectors: NDArray[np.float32],
        threads: int | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]: ...

def training_settings(preset: str | None = None, size: tuple[int, int, int, int] | None = None) -> str: ...
def check_run(settings: str, metrics: str, time_limit: float | None) -> list[str]: ...
def text_settings() -> str: ...
def metric_settings() -> str: ...
def samplers() -> list[str]: ...
def measure(
    predicted: NDArray[np.int64],
    labels: Labels,
    unknown_labels: NDArray[np.uint32],
    options: str,
    training: tuple[NDArray[np.uint32], int] | None,
) -> dict[str, float | None]: ...
def read_examples(
    path: str | PathLike[str], num_features: int | None, num_classes: int | None, skip_bad_rows: bool
) -> tuple[tuple[Features, Labels], list[str]]: ...
def read_texts(
    path: str | PathLike[str],
    *,
    format: str | None,
    text: str | None,
    labels: str | None,
    header: bool | None,
    label_separator: str,
    quotes: bool,
    label_prefix: str,
    with_labels: bool,
    skip_bad_rows: bool,
) -> tuple[list[str], list[list[str]], str | None]: ...
def read_matrix(
    path: str | PathLike[str], labels: str | PathLike[str], label_separator: str
) -> tuple[tuple[Features, Labels], list[str]]: ...
def write_examples(path: str | PathLike[str], features: Features, labels: Labels, packed: bool) -> None: ...
def generate_examples(
    *,
    classes: int,
    features: int,
    train: int,
    test: int,
    labels_per_example: float,
    features_per_example: float,
    label_skew: float,
    noise: float,
    classes_per_cluster: int,
    seed: int,
) -> tuple[tuple[Features, Labels], tuple[Features, Labels]]: ...
