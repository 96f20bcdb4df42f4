"""Extreme classification: softmax over millions of classes on ordinary CPUs.

>>> import lookalike
>>> cities = ["Paris", "London", "Lisbon"] * 4
>>> model = lookalike.ExtremeClassifier(epochs=30).fit(cities, cities)
>>> str(model.predict(["Lisbn"])[0])
'Lisbon'

What there is is imported when it is first used, so that importing the package
costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lookalike._native import __version__

if TYPE_CHECKING:
    from lookalike import datasets as datasets
    from lookalike import metrics as metrics
    from lookalike import onnx as onnx
    from lookalike import torch as torch
    from lookalike._progress import InterruptedTraining as InterruptedTraining
    from lookalike.client import Client as Client
    from lookalike.client import ServiceError as ServiceError
    from lookalike.estimator import ExtremeClassifier as ExtremeClassifier
    from lookalike.index import Found as Found
    from lookalike.index import LshIndex as LshIndex

_HOMES = {
    "Client": "client",
    "ExtremeClassifier": "estimator",
    "Found": "index",
    "InterruptedTraining": "_progress",
    "LshIndex": "index",
    "ServiceError": "client",
}
_MODULES = ("datasets", "metrics", "onnx", "torch")

__all__ = [
    "Client",
    "ExtremeClassifier",
    "Found",
    "InterruptedTraining",
    "LshIndex",
    "ServiceError",
    "__version__",
    "datasets",
    "metrics",
    "onnx",
    "torch",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"lookalike.{_HOMES[name]}"), name)
    if name in _MODULES:
        return import_module(f"lookalike.{name}")
    raise AttributeError(f"module 'lookalike' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
