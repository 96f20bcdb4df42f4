"""The classes that a batch is scored against, proposed by the library's samplers.

Two ways. Each example may have negatives of its own, as in the paper. Or all
examples share the negatives of their batch, as in TensorFlow's sampled softmax:
then scores are one product of matrices, an update touches as many rows as there
are negatives, and an example sees many more of them in the same time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lookalike import _native
from lookalike._settings import merged

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]
Numbers = NDArray[np.float32]

# Tables are not refreshed before so many rows, as a share of the classes, were
# part of a step.
_CHANGED_SHARE_MIN = 0.5
# Tables where examples share negatives, unless `lsh.l` says otherwise: each finds
# a few only, and fewer tables are refreshed faster.
_TABLES_SHARED = 16


class ByExample(NamedTuple):
    """Candidates of each example, its target first."""

    classes: Ids
    """The different classes of the batch, ascending."""
    places: Ids
    """Examples × candidates, as places in `classes`."""
    is_candidate: Flags
    """Which of these count; rows are filled up to the longest."""
    log_q: Numbers | None
    """What to subtract from the scores."""


class ByBatch(NamedTuple):
    """Negatives that all examples share."""

    classes: Ids
    """The negatives and all targets, ascending."""
    is_negative: Flags
    """Which of `classes` are negatives of every example that has another target."""
    log_q: Numbers | None
    """What to subtract from the scores of each of `classes`."""


class Proposer:
    """Asks a sampler for candidates, and keeps its hash tables."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        dim: int,
        class_counts: NDArray[np.uint32],
        shared: bool,
        threads: int | None,
    ) -> None:
        self._settings = settings
        self._dim = dim
        self._class_counts = class_counts
        self._shared = shared
        self._threads = threads
        self._sampler = self._make(settings)
        self._has_tables = False
        self._is_due = False
        self._rows_since_refresh = 0
        self._examples_max = 0
        self.budget = self._sampler.budget
        self.uses_tables = self._sampler.uses_tables
        log_q = self._sampler.class_log_q()
        self._class_log_q = log_q if self._sampler.corrects_log_q else None

    def _make(self, settings: Mapping[str, Any]) -> _native.Sampler:
        return _native.Sampler(json.dumps(settings), self._dim, self._class_counts)

    def prepare(self, iteration: int, examples: int) -> bool:
        """Gets ready for a batch; whether the tables have to be refreshed before."""
        if not self.uses_tables:
            return False
        if self._shared and examples > self._examples_max:
            self._examples_max = examples
            self._sampler = self._make(self._settings_of_one(examples))
            self._has_tables = False
        self._is_due = self._is_due or self._sampler.is_due(iteration)
        # On schedule; but while few rows have changed, hashing all of them can wait,
        # so that a step's share of it does not grow with the classes.
        has_changed = self._rows_since_refresh >= len(self._class_counts) * _CHANGED_SHARE_MIN
        return not self._has_tables or (self._is_due and has_changed)

    def _settings_of_one(self, examples: int) -> dict[str, Any]:
        """Settings of a sampler that finds each example's part of the batch's negatives."""
        budget = max(math.ceil(self._found_max / examples), 1)
        own = {"budget": budget, "mixed": {"hashed-share": 1.0}}
        if self._settings["lsh"]["l"] is None:
            own["lsh"] = {"l": _TABLES_SHARED}
        return merged(self._settings, own)

    @property
    def _found_max(self) -> int:
        share = float(self._settings["mixed"]["hashed-share"]) if self._draws_the_rest else 1.0
        return round(self.budget * share)

    @property
    def _draws_the_rest(self) -> bool:
        return bool(self._settings["sampler"] == "mixed")

    def refresh(self, class_vectors: Numbers) -> None:
        """Hashes the class vectors again."""
        self._sampler.refresh(class_vectors, None, self._threads)
        self._has_tables = True
        self._is_due = False
        self._rows_since_refresh = 0

    def _labels(self, targets: Ids) -> tuple[Ids, NDArray[np.int32], int]:
        """The targets as lists of labels; a target below 0 is none."""
        is_label = targets >= 0
        offsets = np.concatenate([[0], np.cumsum(is_label)]).astype(np.int64)
        return offsets, targets[is_label].astype(np.int32), len(self._class_counts)

    def by_example(self, iteration: int, inputs: Numbers, targets: Ids, class_vectors: Numbers) -> ByExample:
        """Candidates of each example."""
        labels = self._labels(targets)
        classes, places, counts, drawn_log_q = self._sampler.propose(
            iteration, inputs, labels, class_vectors, self._threads
        )
        self._rows_since_refresh += len(classes)
        number = np.arange(places.shape[1])
        is_candidate = number < counts.sum(axis=1, keepdims=True)
        log_q = None
        if self._class_log_q is not None:
            log_q = self._class_log_q[classes][places]
        elif self._sampler.corrects_log_q:
            is_drawn = number >= counts[:, :2].sum(axis=1, keepdims=True)
            log_q = np.where(is_drawn, drawn_log_q[:, None], np.float32(0))
        return ByExample(classes, places, is_candidate, log_q)

    def by_batch(self, iteration: int, inputs: Numbers, targets: Ids, class_vectors: Numbers) -> ByBatch:
        """Negatives for all examples together; those with a target below 0 have none here."""
        own = np.unique(targets[targets >= 0])
        if not self.uses_tables:
            return self._drawn(iteration, own, class_vectors)
        proposal = self._found_and_drawn(iteration, inputs, targets, own, class_vectors)
        self._rows_since_refresh += len(proposal.classes)
        return proposal

    def _found_and_drawn(
        self, iteration: int, inputs: Numbers, targets: Ids, own: Ids, class_vectors: Numbers
    ) -> ByBatch:
        chance = np.random.default_rng([int(self._settings["seed"]), iteration])
        found = self._found(iteration, inputs, targets, class_vectors)
        limit = self._found_max
        if len(found) > limit:
            found = np.sort(chance.choice(found, limit, replace=False, shuffle=False))
        if not self._draws_the_rest:
            return _negatives(own, found, None)
        # As for one example (see the library's `mixed`): what was found and all
        # targets count once, and each drawn class stands for its share of the rest.
        known = np.union1d(own, found)
        others = len(self._class_counts) - len(known)
        wanted = min(max(self.budget - len(found), 1), others)
        drawn = _draw_others(chance, len(self._class_counts), known, wanted)
        proposal = _negatives(known, np.union1d(known, drawn), None)
        if others == 0 or not self._sampler.corrects_log_q:
            return proposal
        is_known = np.isin(proposal.classes, known, assume_unique=True)
        log_q = np.where(is_known, 0.0, math.log(wanted / others)).astype(np.float32)
        return proposal._replace(log_q=log_q)

    def _drawn(self, iteration: int, own: Ids, class_vectors: Numbers) -> ByBatch:
        """The negatives of a fixed distribution: drawn for one example without labels."""
        nobody = np.zeros((1, self._dim), np.float32)
        no_labels = (np.zeros(2, np.int64), np.empty(0, np.int32), len(self._class_counts))
        drawn, *_ = self._sampler.propose(iteration, nobody, no_labels, class_vectors, self._threads)
        return _negatives(own, drawn, self._class_log_q)

    def _found(self, iteration: int, inputs: Numbers, targets: Ids, class_vectors: Numbers) -> Ids:
        """What the tables hold for any of the examples."""
        labels = self._labels(targets)
        classes, places, counts, _ = self._sampler.propose(
            iteration, inputs, labels, class_vectors, self._threads
        )
        truths, found, drawn = counts.T[:, :, None]
        # `mixed` draws for the whole batch, and what `lsh.fill` draws is as good as found.
        last = truths + found + (0 if self._draws_the_rest else drawn)
        number = np.arange(places.shape[1])
        is_found = np.zeros(len(classes), np.bool_)
        is_found[places[(number >= truths) & (number < last)]] = True
        return classes[is_found]


def _negatives(own: Ids, negatives: Ids, class_log_q: Numbers | None) -> ByBatch:
    classes = np.union1d(own, negatives)
    is_negative = np.isin(classes, negatives, assume_unique=True)
    return ByBatch(classes, is_negative, None if class_log_q is None else class_log_q[classes])


def _draw_others(chance: np.random.Generator, num_classes: int, known: Ids, wanted: int) -> Ids:
    """Draws uniformly, without repetition, from the classes that are not `known` (ascending).

    >>> _draw_others(np.random.default_rng(0), 6, np.array([0, 3, 4]), 3).tolist()
    [1, 2, 5]
    """
    others = num_classes - len(known)
    if others == 0:
        return np.empty(0, np.int64)
    numbers = np.sort(chance.choice(others, wanted, replace=False, shuffle=False))
    # The n-th of the others stands behind all known ones that have at most n others before them.
    return numbers + np.searchsorted(known - np.arange(len(known)), numbers, side="right")
