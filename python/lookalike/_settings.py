"""Settings of training: the library's defaults, a preset, and what was given.

The library knows which settings there are; here they are only put together, so
that a new one needs no change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from lookalike import _native

SAMPLERS = (*_native.samplers(), "nce")


def merged(base: Mapping[str, Any], over: Mapping[str, Any] | None) -> dict[str, Any]:
    """`base` with the values of `over`, also within nested settings.

    >>> merged({"lr": 0.1, "lsh": {"k": 1, "l": 2}}, {"lsh": {"l": 9}})
    {'lr': 0.1, 'lsh': {'k': 1, 'l': 9}}
    """
    result = dict(base)
    for name, value in (over or {}).items():
        old = result.get(name)
        nested = isinstance(old, Mapping) and isinstance(value, Mapping)
        result[name] = merged(old, value) if nested else value  # type: ignore[arg-type]
    return result


def training_settings(
    preset: str | None,
    settings: Mapping[str, Any] | None,
    given: Mapping[str, Any],
    size: tuple[int, int, int, int] | None = None,
    fitted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that decides what training does.

    Names may be written with `_` for `-`. What is `None` in `given` stays as it is.
    The preset `"auto"` needs the data's `size`: examples, classes, feature values, labels.
    Settings of a `fitted` model stand in the preset's place.

    >>> training_settings(None, {"lr_schedule": "linear"}, {"epochs": 3, "batch": None})["lr-schedule"]
    'linear'
    """
    base = fitted or json.loads(_native.training_settings(preset, size))
    base = merged(base, _with_dashes(settings or {}))
    given = {name: value for name, value in given.items() if value is not None}
    _check(given)
    if given.get("sampler") == "nce":
        # As on the command line: a sampler with a loss of its own.
        noise = "frequency" if base["sampler"] == "frequency" else "log-uniform"
        given.update(sampler=noise, loss="nce")
    elif "sampler" in given and base.get("loss") == "nce":
        # Which another sampler does not have.
        given.setdefault("loss", None)
    if "hidden" in given:
        hidden = given["hidden"]
        given["hidden"] = [int(width) for width in hidden] if hasattr(hidden, "__iter__") else [int(hidden)]
    if "budget" in given:
        given["sparsity"] = None
    result = merged(base, _with_dashes(given))
    if isinstance(given.get("sparse"), bool):
        # As on the command line: true leaves what is there, or takes the defaults.
        result["sparse"] = (base["sparse"] or {}) if given["sparse"] else None
    return result


def _check(given: Mapping[str, Any]) -> None:
    """Answers a bad value in words, before anything is done."""
    if (sampler := given.get("sampler")) is not None and sampler not in SAMPLERS:
        raise ValueError(f"sampler is {sampler!r}, but must be one of {', '.join(SAMPLERS)}")
    for name in ("epochs", "batch", "budget", "members", "hidden"):
        value = given.get(name, 1)
        for number in value if hasattr(value, "__iter__") and not isinstance(value, str) else [value]:
            is_whole = isinstance(number, Integral) and not isinstance(number, bool)
            if not is_whole or number < 1:
                raise ValueError(f"{name} is {value!r}, but must be a whole number, 1 or more")
    rate = given.get("lr", 1.0)
    if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 < float(rate) < float("inf"):
        raise ValueError(f"lr is {rate!r}, but must be a number above 0, such as 0.01")
    seed = given.get("seed", 0)
    if not isinstance(seed, Integral) or seed < 0:
        raise ValueError(f"random_state is {seed!r}, but must be None or a whole number, 0 or more")


def _with_dashes(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace("_", "-"): _with_dashes(value) if isinstance(value, Mapping) else _plain(value)
        for name, value in settings.items()
    }


def _plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's, which JSON knows."""
    return value.item() if hasattr(value, "item") else value
