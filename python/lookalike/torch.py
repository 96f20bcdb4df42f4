"""Sampled softmax for PyTorch: a huge output layer, trained in sub-linear time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from lookalike._group import UNSCORED, ClassGroup
from lookalike._proposals import ByBatch, ByExample, Proposer
from lookalike._settings import training_settings

__all__ = ["SampledSoftmaxLoss", "SampledSoftmaxOutput"]

# Scores that `topk` and an exact loss keep at a time.
_CHUNK_ELEMENTS = 1 << 24
# A product with all classes of the batch is the faster way while they are at
# most this many times the candidates of an example.
_SHARED_RATIO_MAX = 8
# What tells PyTorch that the indices of a sparse tensor are sorted and different.
# Older versions can't be told, and sort them.
_VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
_COALESCED: dict[str, Any] = {"is_coalesced": True, "check_invariants": False} if _VERSION >= (2, 1) else {}


class SampledSoftmaxOutput(NamedTuple):
    """What `SampledSoftmaxLoss` gives."""

    output: Tensor
    """The log-probability of each example's target."""
    loss: Tensor
    """Its negative mean."""


class _Rows(torch.autograd.Function):
    """Different rows of a matrix, ascending.

    The gradient is sparse, as that of `embedding`, and known to be coalesced:
    an optimizer need not sort it.
    """

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = matrix.shape
        return matrix.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return torch.sparse_coo_tensor(rows.unsqueeze(0), gradient, ctx.shape, **_COALESCED), None


class SampledSoftmaxLoss(nn.Module):
    """The output layer of a classifier with its cross-entropy, by sampled softmax.

    In training, each example's target is scored against some `budget` negatives
    that `sampler` proposes, in the main once for the whole batch; the gradients of
    `weight` and `bias` are sparse, so that with `torch.optim.SparseAdam` a step
    costs the same whatever the number of classes. In evaluation the loss is exact,
    over all classes.

    Parameters
    ----------
    num_classes, dim
        Classes, and the width of the input.
    sampler
        `lsh-embedding`, `lsh-label`, `mixed`, `log-uniform`, `frequency`,
        `uniform`; or `top-k` and `full`, which score every class.
    budget
        Negatives an example. `None`: 2% of the classes, within 100 and 1,000.
    shared
        Whether the examples of a batch share their negatives, as in TensorFlow.
        Otherwise each has `budget` of its own, as in the paper, and a step is
        several times slower.
    bias
        Whether classes have a bias. It starts as the logarithm of the class's
        share of `class_counts`, or as 0.
    log_q
        Whether scores are corrected by the logarithm of the chance to be
        proposed. `None`: as each sampler is usually run; the paper's two are not.
    class_counts
        How often each class occurs, for biases, `frequency` and `log-uniform`.
        Without, `log-uniform` takes classes to be sorted by falling frequency.
    settings
        Other settings, as for `ExtremeClassifier`: `{"lsh": {"k": 4, "l": 50}}`.
    seed
        Draws hash functions and negatives.
    threads
        Threads to propose negatives with; `None` for all cores.
    process_group
        Shares the classes among the ranks of a `torch.distributed` group (gloo, on
        CPUs): each holds a range of them with their hash tables, and `weight` and
        `bias` are those of this range (`classes`). Ranks bring batches of their own,
        of equal size, and get the loss of their own examples against the classes of
        all; negatives are found on every rank, `budget` divided by the ranks on each.
        Gradients of `weight` and `bias` are means over ranks, as those that
        `DistributedDataParallel` makes of the layers below. All ranks call the same
        methods in the same order. Examples of a batch share their negatives; `top-k`
        is for one process.

    Examples
    --------
    >>> import torch
    >>> from lookalike.torch import SampledSoftmaxLoss
    >>> _ = torch.manual_seed(0)
    >>> head = SampledSoftmaxLoss(num_classes=1000, dim=16, sampler="uniform", budget=50)
    >>> optimizer = torch.optim.SparseAdam(list(head.parameters()), lr=0.01)
    >>> hidden, target = torch.randn(8, 16), torch.arange(8)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     loss = head(hidden, target).loss
    ...     loss.backward()
    ...     optimizer.step()
    >>> head.eval().predict(hidden).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        sampler: str = "mixed",
        budget: int | None = None,
        *,
        shared: bool = True,
        bias: bool = True,
        log_q: bool | None = None,
        class_counts: ArrayLike | None = None,
        settings: Mapping[str, Any] | None = None,
        seed: int = 1,
        threads: int | None = None,
        process_group: Any = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if num_classes < 2 or dim < 1:
            raise ValueError(f"num_classes={num_classes} and dim={dim}: needs 2 classes and 1 dimension")
        self._group = None if process_group is None else ClassGroup(process_group, num_classes)
        if self._group is not None and (not shared or sampler == "top-k"):
            raise ValueError("over a process_group examples share their negatives, and top-k is not there")
        self.num_classes = num_classes
        self.dim = dim
        self.shared = shared
        self._threads = threads
        if self._group is not None and budget is not None:
            budget = -(-budget // self._group.size)
        given = {"sampler": sampler, "budget": budget, "log-q": log_q, "seed": seed}
        self._settings = training_settings(None, settings, given)
        counts = _counts(class_counts, num_classes)
        self._mean_count = float((counts + 1.0).mean())
        self._class_counts = np.ascontiguousarray(counts[self.classes.start : self.classes.stop])
        self.iteration = 0
        rows = len(self.classes)
        self.weight = nn.Parameter(torch.empty(rows, dim, device=device, dtype=dtype))
        # A column, because a row a class is what sparse gradients are made of.
        self.bias = nn.Parameter(torch.zeros(rows, 1, device=device, dtype=dtype)) if bias else None
        self.reset_parameters()
        self._make_proposer()

    def reset_parameters(self) -> None:
        """Draws class vectors of about unit length; biases are as at the start."""
        # Ranks that start alike are not to have the same vectors.
        with torch.random.fork_rng(devices=[], enabled=self._group is not None):
            if self._group is not None:
                torch.manual_seed(torch.initial_seed() + self._group.rank)
            nn.init.normal_(self.weight, std=self.dim**-0.5)
        if self.bias is not None:
            counts = self._class_counts + 1.0
            with torch.no_grad():
                self.bias.copy_(torch.from_numpy(np.log(counts / self._mean_count)).unsqueeze(1))

    def _make_proposer(self) -> None:
        self._snapshot: NDArray[np.float32] | None = None
        self._proposer: Proposer | None = None
        if self.sampler not in ("full", "top-k"):
            self._proposer = Proposer(
                self._settings, self.dim, self._class_counts, self.shared, self._threads
            )

    @property
    def classes(self) -> range:
        """The classes that are here: all, or this rank's."""
        group = self._group
        return range(self.num_classes) if group is None else range(group.first, group.end)

    @property
    def sampler(self) -> str:
        """Who proposes negatives."""
        return str(self._settings["sampler"])

    @property
    def budget(self) -> int:
        """Negatives an example, at most."""
        if self._proposer is not None:
            return self._proposer.budget
        wanted = self._settings["budget"]
        return min(len(self.classes) - 1, 100 if wanted is None else int(wanted))

    # The loss

    def forward(self, input: Tensor, target: Tensor) -> SampledSoftmaxOutput:
        """The loss of a batch: `input` has a row an example, `target` its class."""
        self._check(input, target)
        if self._group is not None:
            output = self._over_group(self._group, input, target)
            self.iteration += int(self.training)
        elif not self.training:
            output = self._exact(input, target)
        elif self.sampler == "full":
            output = self.log_prob(input).gather(1, target.unsqueeze(1)).squeeze(1)
        else:
            output = self._sampled(input, target)
            self.iteration += 1
        return SampledSoftmaxOutput(output, -output.mean())

    def _check(self, input: Tensor, target: Tensor) -> None:
        if input.dim() != 2 or input.shape[1] != self.dim:
            raise ValueError(f"input must be examples × {self.dim}, but is {tuple(input.shape)}")
        if target.shape != input.shape[:1]:
            raise ValueError(f"target must have {input.shape[0]} elements, but is {tuple(target.shape)}")
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(f"target must hold class numbers, but is of {target.dtype}")
        if target.numel() > 0 and (int(target.min()) < 0 or int(target.max()) >= self.num_classes):
            raise ValueError(f"target holds classes beyond 0 to {self.num_classes - 1}")

    def _sampled(self, input: Tensor, target: Tensor) -> Tensor:
        if self._proposer is None:
            return self._score_own(input, *self._highest(input, target))
        inputs = np.ascontiguousarray(input.detach().cpu().float().numpy())
        targets = target.detach().cpu().numpy().astype(np.int64)
        if self._proposer.prepare(self.iteration, len(targets)):
            self.refresh()
        if self.shared:
            shared = self._proposer.by_batch(self.iteration, inputs, targets, self._vectors())
            places = torch.from_numpy(np.searchsorted(shared.classes, targets)).to(self.weight.device)
            return self._score_shared(input, places, *self._tensors(shared))
        return self._score_own(
            input,
            *self._tensors(self._proposer.by_example(self.iteration, inputs, targets, self._vectors())),
        )

    def _over_group(self, group: ClassGroup, input: Tensor, target: Tensor) -> Tensor:
        """Each rank scores the examples of all against its own classes."""
        group.check_batch(len(input))
        inputs, targets = group.gathered(input), group.gather(target)
        is_own = targets.ge(group.first).logical_and(targets.lt(group.end))
        own = targets.sub(group.first).masked_fill(~is_own, -1)
        if self.training and self._proposer is not None:
            scores, truths = self._group_sampled(group, self._proposer, inputs, own, is_own)
        else:
            scores, truths = self._group_exact(group, inputs, own, is_own)
        return group.joined(scores, truths, is_own)

    def _group_sampled(
        self, group: ClassGroup, proposer: Proposer, inputs: Tensor, own: Tensor, is_own: Tensor
    ) -> tuple[Tensor, Tensor]:
        vectors = np.ascontiguousarray(inputs.detach().cpu().float().numpy())
        targets = own.cpu().numpy().astype(np.int64)
        if proposer.prepare(self.iteration, len(targets)):
            self.refresh()
        proposal = proposer.by_batch(self.iteration, vectors, targets, self._vectors())
        if len(proposal.classes) == 0:
            # The gradient of the others' scores still comes by here.
            nothing = inputs.mul(0).sum(dim=1)
            return nothing + UNSCORED, nothing
        places = torch.from_numpy(np.searchsorted(proposal.classes, np.maximum(targets, 0)))
        places = places.clamp(max=len(proposal.classes) - 1).to(inputs.device).unsqueeze(1)
        classes, is_negative, log_q = self._tensors(proposal)
        scores = inputs @ group.averaged(_Rows.apply(self.weight, classes)).T
        if self.bias is not None:
            scores = scores + group.averaged(_Rows.apply(self.bias, classes)).T
        if log_q is not None:
            scores = scores - log_q
        is_candidate = is_negative.repeat(len(inputs), 1).scatter(1, places, is_own.unsqueeze(1))
        # Where the target is elsewhere, what stands at `places` is a negative or nothing.
        is_candidate |= is_negative & ~is_own.unsqueeze(1)
        truths = scores.gather(1, places).squeeze(1) * is_own
        return scores.masked_fill(~is_candidate, UNSCORED).logsumexp(dim=1), truths

    def _group_exact(
        self, group: ClassGroup, inputs: Tensor, own: Tensor, is_own: Tensor
    ) -> tuple[Tensor, Tensor]:
        total = torch.full(inputs.shape[:1], -torch.inf, dtype=inputs.dtype, device=inputs.device)
        weight = group.averaged(self.weight)
        bias = None if self.bias is None else group.averaged(self.bias)
        for start, stop in self._chunks(len(inputs)):
            of_chunk = None if bias is None else bias[start:stop, 0]
            scores = functional.linear(inputs, weight[start:stop], of_chunk)
            total = torch.logaddexp(total, scores.logsumexp(dim=1))
        rows = own.clamp(min=0)
        truths = (inputs * weight[rows]).sum(dim=1)
        if bias is not None:
            truths = truths + bias[rows, 0]
        return total, truths * is_own

    def _tensors(self, proposal: ByBatch | ByExample) -> Iterator[Any]:
        for array in proposal:
            yield None if array is None else torch.from_numpy(array).to(self.weight.device)

    def _score_own(
        self, input: Tensor, classes: Tensor, places: Tensor, is_candidate: Tensor, log_q: Tensor | None
    ) -> Tensor:
        """Scores candidates of each example's own, its target first: see `ByExample`."""
        rows = _Rows.apply(self.weight, classes)
        if len(classes) <= _SHARED_RATIO_MAX * places.shape[1]:
            scores = (input @ rows.T).gather(1, places)
        else:
            scores = torch.bmm(functional.embedding(places, rows), input.unsqueeze(2)).squeeze(2)
        if self.bias is not None:
            bias = _Rows.apply(self.bias, classes)
            scores = scores + functional.embedding(places, bias).squeeze(2)
        if log_q is not None:
            scores = scores - log_q
        scores = scores.masked_fill(~is_candidate, -torch.inf)
        return scores[:, 0] - scores.logsumexp(dim=1)

    def _score_shared(
        self, input: Tensor, places: Tensor, classes: Tensor, is_negative: Tensor, log_q: Tensor | None
    ) -> Tensor:
        """Scores targets, which stand at `places`, against the batch's negatives: see `ByBatch`."""
        scores = input @ _Rows.apply(self.weight, classes).T
        if self.bias is not None:
            scores = scores + _Rows.apply(self.bias, classes).T
        if log_q is not None:
            scores = scores - log_q
        places = places.unsqueeze(1)
        truths = scores.gather(1, places)
        # Targets of other examples do not count, unless they are negatives too.
        scores = scores.masked_fill(~is_negative, -torch.inf).scatter(1, places, truths)
        return truths.squeeze(1) - scores.logsumexp(dim=1)

    def _highest(self, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """The candidates of `top-k`."""
        _, best = self.topk(input.detach(), min(self.budget + 1, self.num_classes))
        # The target takes the place of itself, or of the last.
        is_target = best == target.unsqueeze(1)
        is_target[:, -1] |= ~is_target.any(dim=1)
        negatives = best[~is_target].view(len(best), -1)
        candidates = torch.cat([target.unsqueeze(1), negatives], dim=1)
        classes, places = torch.unique(candidates, return_inverse=True)
        return classes, places, torch.ones_like(places, dtype=torch.bool), None

    def _exact(self, input: Tensor, target: Tensor) -> Tensor:
        total = torch.full(input.shape[:1], -torch.inf, dtype=input.dtype, device=input.device)
        for start, stop in self._chunks(len(input)):
            total = torch.logaddexp(total, self._all_scores(input, start, stop).logsumexp(dim=1))
        scores = (input * self.weight[target]).sum(dim=1)
        if self.bias is not None:
            scores = scores + self.bias[target, 0]
        return scores - total

    # The hash tables

    def refresh(self) -> None:
        """Hashes the class vectors again. Training does so on schedule."""
        if self._proposer is not None and self._proposer.uses_tables:
            self._snapshot = None if self._is_live() else self._copied()
            self._proposer.refresh(self._vectors())

    def _is_live(self) -> bool:
        """Whether NumPy can look at the class vectors where they lie."""
        weight = self.weight
        return weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.is_contiguous()

    def _copied(self) -> NDArray[np.float32]:
        return np.ascontiguousarray(self.weight.detach().cpu().float().numpy())

    def _vectors(self) -> NDArray[np.float32]:
        if self._is_live():
            return self.weight.detach().numpy()
        if self._snapshot is None:
            # Never read by samplers without tables, so never filled by the system.
            uses_tables = self._proposer is not None and self._proposer.uses_tables
            shape = (len(self.classes), self.dim)
            self._snapshot = self._copied() if uses_tables else np.zeros(shape, np.float32)
        return self._snapshot

    # All classes

    def _all_scores(self, input: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        bias = None if self.bias is None else self.bias[start:stop, 0]
        return functional.linear(input, self.weight[start:stop], bias)

    def _chunks(self, examples: int) -> list[tuple[int, int]]:
        size = max(_CHUNK_ELEMENTS // max(examples, 1), 1024)
        rows = len(self.classes)
        return [(start, min(start + size, rows)) for start in range(0, rows, size)]

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes, examples × classes."""
        if self._group is not None:
            raise ValueError("no rank has the scores of all classes; ask for `topk`")
        return functional.log_softmax(self._all_scores(input), dim=1)

    @torch.no_grad()
    def topk(self, input: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Scores and numbers of the best `k` classes of each example, best first."""
        if not 1 <= k <= self.num_classes:
            raise ValueError(f"k is {k}, but must be from 1 to {self.num_classes}")
        if self._group is not None:
            self._group.check_batch(len(input))
            input = self._group.gather(input)
        best_scores = input.new_empty(len(input), 0)
        best = torch.empty(len(input), 0, dtype=torch.long, device=input.device)
        for start, stop in self._chunks(len(input)):
            scores, classes = self._all_scores(input, start, stop).topk(min(k, stop - start), dim=1)
            best_scores = torch.cat([best_scores, scores], dim=1)
            best = torch.cat([best, classes + start], dim=1)
            best_scores, kept = best_scores.topk(min(k, best_scores.shape[1]), dim=1)
            best = best.gather(1, kept)
        if self._group is not None:
            return self._group.best(best_scores, best.add(self._group.first), k)
        return best_scores, best

    def predict(self, input: Tensor) -> Tensor:
        """The best class of each example."""
        return self.topk(input, 1)[1].squeeze(1)

    # State

    def get_extra_state(self) -> dict[str, Any]:
        """Settings with the tables' seed, and how many steps were made."""
        state = {"settings": json.dumps(self._settings), "iteration": self.iteration}
        return {**state, "shared": self.shared}

    def set_extra_state(self, state: Any) -> None:
        """Goes on where the state was taken; the tables are built at the next step."""
        self._settings = json.loads(state["settings"])
        self.iteration = int(state["iteration"])
        self.shared = bool(state["shared"])
        self._make_proposer()

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"{self.num_classes}, {self.dim}, sampler={self.sampler!r}, budget={self.budget}"


def _counts(class_counts: ArrayLike | None, num_classes: int) -> NDArray[np.uint32]:
    if class_counts is None:
        return np.zeros(num_classes, np.uint32)
    counts = np.asarray(class_counts)
    if counts.shape != (num_classes,) or (counts < 0).any():
        raise ValueError(f"class_counts must hold {num_classes} counts, 0 or more")
    return np.ascontiguousarray(counts, np.uint32)
