"""Classes of a PyTorch layer over the ranks of a process group.

Each rank holds a range of classes and brings examples of its own. All see the
examples of all, score them against their own classes, and tell each other what they
found: an example's width and three numbers cross the wire, whatever the number of
classes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Scores of what is no candidate: an exponential of it is 0, and no gradient is undefined.
UNSCORED = -1e30


class _Gathered(torch.autograd.Function):
    """The rows of all ranks, in their order; the gradients of all go back to whose row it is."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: ClassGroup) -> Tensor:
        ctx.group = group
        return group.gather(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        whole = ctx.group.sum(gradient.contiguous())
        return ctx.group.own_rows(whole), None


class _Joined(torch.autograd.Function):
    """Log-probabilities of targets, from what each rank knows of its own classes.

    `scores` are logarithms of sums of exponentials over the classes here, `truths` the
    targets' scores, 0 where another rank has the target.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, truths: Tensor, is_own: Tensor, group: ClassGroup) -> Tensor:
        largest = group.largest(scores)
        total = largest + group.sum((scores - largest).exp()).log()
        ctx.save_for_backward((scores - total).exp(), is_own)
        ctx.group = group
        return group.sum(truths.clone()) - total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        share, is_own = ctx.saved_tensors
        # Each rank knows the gradients of its own examples.
        gradient = ctx.group.sum(gradient.contiguous())
        return -gradient * share, gradient * is_own, None, None


class _Averaged(torch.autograd.Function):
    """Parameters as they are; their gradient is a mean over ranks, as that of DDP's."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: ClassGroup) -> Tensor:
        ctx.size = group.size
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient / ctx.size, None


class ClassGroup:
    """The ranks of a process group, and which of so many classes this one holds."""

    def __init__(self, process_group: Any, num_classes: int) -> None:
        self._group = process_group
        self.rank: int = dist.get_rank(process_group)
        self.size: int = dist.get_world_size(process_group)
        if num_classes < self.size:
            raise ValueError(f"{num_classes} classes can't be shared by {self.size} ranks")
        self.first = num_classes * self.rank // self.size
        self.end = num_classes * (self.rank + 1) // self.size

    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, which have equally many."""
        rows = rows.detach().contiguous()
        parts = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(parts, rows, group=self._group)
        return torch.cat(parts)

    def own_rows(self, rows: Tensor) -> Tensor:
        """This rank's of gathered rows."""
        count = len(rows) // self.size
        return rows[self.rank * count : (self.rank + 1) * count]

    def sum(self, values: Tensor) -> Tensor:
        """Sums over ranks, in place."""
        dist.all_reduce(values, dist.ReduceOp.SUM, group=self._group)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The largest values of all ranks."""
        values = values.detach().clone()
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self._group)
        return values

    def check_batch(self, examples: int) -> None:
        """All ranks must bring equally many examples."""
        counts = self.gather(torch.tensor([examples])).tolist()
        if len(set(counts)) > 1:
            raise ValueError(f"all ranks must bring equally many examples, but they bring {counts}")

    def gathered(self, rows: Tensor) -> Tensor:
        """The rows of all ranks, differentiable."""
        return _Gathered.apply(rows, self)

    def averaged(self, values: Tensor) -> Tensor:
        """Parameters whose gradient is a mean over ranks."""
        return _Averaged.apply(values, self)

    def joined(self, scores: Tensor, truths: Tensor, is_own: Tensor) -> Tensor:
        """Log-probabilities of this rank's examples: see `_Joined`."""
        return self.own_rows(_Joined.apply(scores, truths, is_own.to(scores.dtype), self))

    def best(self, scores: Tensor, classes: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The best of all ranks for this rank's examples, of each rank's best for all examples."""
        short = k - scores.shape[1]
        if short > 0:
            scores = torch.nn.functional.pad(scores, (0, short), value=-torch.inf)
            classes = torch.nn.functional.pad(classes, (0, short))
        ranks = (self.size, len(scores), k)
        scores = torch.cat([*self.own_columns(self.gather(scores).view(ranks))], dim=1)
        classes = torch.cat([*self.own_columns(self.gather(classes).view(ranks))], dim=1)
        scores, kept = scores.topk(k, dim=1)
        return scores, classes.gather(1, kept)

    def own_columns(self, of_ranks: Tensor) -> list[Tensor]:
        """What each rank says of this rank's examples."""
        return [self.own_rows(rows) for rows in of_ranks]
