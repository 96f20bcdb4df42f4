"""The PyTorch layer, against full softmax."""

from __future__ import annotations

import copy
import math
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; its CPU build is enough")

from lookalike.torch import SampledSoftmaxLoss  # noqa: E402

# Small products on many threads mostly wait for each other.
torch.set_num_threads(1)

SAMPLERS = ["lsh-embedding", "lsh-label", "mixed", "log-uniform", "frequency", "uniform", "top-k", "full"]


def batch(examples=16, dim=12, classes=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(examples, dim, generator=generator, requires_grad=True)
    return hidden, torch.randint(classes, (examples,), generator=generator)


def exact(head, hidden, target):
    bias = None if head.bias is None else head.bias[:, 0]
    scores = torch.nn.functional.linear(hidden, head.weight, bias)
    return torch.nn.functional.cross_entropy(scores, target)


@pytest.mark.parametrize("sampler", ["mixed", "log-uniform", "frequency", "uniform", "top-k", "full"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_a_budget_of_all_classes_is_full_softmax(sampler, bias, shared):
    hidden, target = batch()
    head = SampledSoftmaxLoss(40, 12, sampler, 40, shared=shared, bias=bias, class_counts=range(1, 41))
    gradients = []
    for loss in (head(hidden, target).loss, exact(head, hidden, target)):
        head.zero_grad()
        hidden.grad = None
        loss.backward()
        dense = [p.grad.to_dense() for p in (*head.parameters(), hidden)]
        gradients.append([loss.detach(), *dense])
    for sampled, full in zip(*gradients, strict=True):
        torch.testing.assert_close(sampled, full, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("dim", "shared"), [(16, True), (13, True), (13, False)])
def test_every_sampler_learns_with_sparse_gradients(sampler, dim, shared):
    torch.manual_seed(1)
    classes = 300
    centres = torch.randn(classes, dim)
    head = SampledSoftmaxLoss(classes, dim, sampler, 60, shared=shared, class_counts=[1] * classes)
    kind = torch.optim.Adam if sampler == "full" else torch.optim.SparseAdam
    optimizer = kind(list(head.parameters()), lr=0.05)
    for _ in range(120):
        target = torch.randint(classes, (128,))
        optimizer.zero_grad()
        output = head(centres[target], target)
        output.loss.backward()
        assert head.weight.grad.is_sparse == (sampler != "full")
        optimizer.step()
    assert output.output.shape == (128,)
    head.eval()
    share = (head.predict(centres) == torch.arange(classes)).float().mean()
    assert share > 0.9, share


@pytest.mark.parametrize("shared", [True, False])
def test_the_gradient_estimates_that_of_full_softmax(shared):
    """The mixed sampler's estimate of the partition function is unbiased."""
    hidden, target = batch(examples=4, classes=200)
    losses = []
    for seed in range(300):
        torch.manual_seed(0)
        head = SampledSoftmaxLoss(200, 12, "mixed", 40, shared=shared, seed=seed)
        log_probability = head(hidden, target).output.detach()
        scores = torch.nn.functional.linear(hidden, head.weight)
        truth = scores.gather(1, target.unsqueeze(1)).squeeze(1)
        losses.append(torch.exp(truth - log_probability) / scores.exp().sum(dim=1))
    ratios = torch.stack(losses).detach()
    errors = ratios.std(dim=0) / len(ratios) ** 0.5
    assert ((ratios.mean(dim=0) - 1).abs() < 5 * errors).all(), ratios.mean(dim=0)


@pytest.mark.parametrize("log_q", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_log_q_is_subtracted_from_targets_and_negatives(log_q, shared):
    hidden, target = batch(classes=1000)
    head = SampledSoftmaxLoss(1000, 12, "log-uniform", 50, shared=shared, bias=False, log_q=log_q)
    ask = head._proposer.by_batch if shared else head._proposer.by_example
    proposal = ask(0, hidden.detach().numpy(), target.numpy(), head.weight.detach().numpy())
    ranks = torch.arange(1000, dtype=torch.double)
    chances = torch.log1p(1 / (ranks + 1)) / math.log(1001)
    output = head(hidden, target).output
    for i in range(len(hidden)):
        if shared:
            negatives = [c for c in proposal.classes[proposal.is_negative].tolist() if c != target[i]]
            assert len(negatives) in (49, 50)
        else:
            own, *negatives = proposal.classes[proposal.places[i][proposal.is_candidate[i]]].tolist()
            assert own == target[i]
            assert len(set(negatives)) == len(negatives) == 50
        candidates = torch.tensor([int(target[i]), *negatives])
        scores = head.weight[candidates] @ hidden[i]
        if log_q:
            # As often as 50 different classes take, on the average.
            draws = 50.0
            for _ in range(100):
                draws += 50 - float((1 - (1 - chances) ** draws).sum())
            scores = scores - torch.log(1 - (1 - chances[candidates]) ** draws).float()
        torch.testing.assert_close(output[i], scores.log_softmax(dim=0)[0], rtol=1e-4, atol=1e-4)


def test_biases_start_as_the_logarithm_of_frequency():
    counts = [0, 1, 7, 31]
    head = SampledSoftmaxLoss(4, 12, "uniform", 2, class_counts=counts)
    shares = head.bias[:, 0].softmax(dim=0)
    torch.testing.assert_close(shares, torch.tensor([1.0, 2.0, 8.0, 32.0]) / 43)
    assert not SampledSoftmaxLoss(4, 12, "uniform", 2).bias.any()


def test_evaluation_is_exact_whatever_the_chunks(monkeypatch):
    hidden, target = batch(classes=3000)
    head = SampledSoftmaxLoss(3000, 12, "uniform", 10).eval()
    with torch.no_grad():
        head.bias.normal_()
    monkeypatch.setattr("lookalike.torch._CHUNK_ELEMENTS", 16)
    output, loss = head(hidden, target)
    torch.testing.assert_close(loss, exact(head, hidden, target))
    log_probabilities = head.log_prob(hidden)
    torch.testing.assert_close(output, log_probabilities.gather(1, target.unsqueeze(1)).squeeze(1))
    torch.testing.assert_close(log_probabilities.exp().sum(dim=1), torch.ones(16))
    scores, classes = head.topk(hidden, 7)
    expected = log_probabilities.topk(7, dim=1)
    assert torch.equal(classes, expected.indices)
    assert torch.equal(head.predict(hidden), expected.indices[:, 0])
    assert (scores[:, :-1] >= scores[:, 1:]).all()


@pytest.mark.parametrize("sampler", ["lsh-label", "log-uniform", "mixed"])
def test_a_state_goes_on_as_the_original(sampler):
    def step(head, optimizer, seed):
        hidden, target = batch(classes=500, seed=seed)
        optimizer.zero_grad()
        head(hidden, target).loss.backward()
        optimizer.step()

    head = SampledSoftmaxLoss(500, 12, sampler, 30, seed=9, settings={"lsh": {"refresh_first": 4}})
    optimizer = torch.optim.SparseAdam(list(head.parameters()))
    for seed in range(8):
        step(head, optimizer, seed)
    other = SampledSoftmaxLoss(500, 12, sampler, 30, seed=1, settings={"lsh": {"refresh_first": 4}})
    other.load_state_dict(head.state_dict())
    twin = torch.optim.SparseAdam(list(other.parameters()))
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert (other.iteration, other.sampler, other.budget) == (8, sampler, 30)
    head.refresh()  # a state holds no tables: they are built anew when training goes on
    for seed in range(8, 16):
        step(head, optimizer, seed)
        step(other, twin, seed)
    assert torch.equal(head.weight, other.weight)


def test_other_precisions_are_hashed_as_float32():
    torch.manual_seed(0)
    head = SampledSoftmaxLoss(200, 16, "lsh-label", 30, dtype=torch.float64)
    hidden, target = batch(dim=16, classes=200)
    head(hidden.double(), target).loss.backward()
    assert head.weight.grad.dtype == torch.float64


def test_wrong_input_is_refused():
    head = SampledSoftmaxLoss(10, 4, "uniform", 3)
    for hidden, target, error, message in [
        (torch.ones(2, 5), torch.tensor([0, 1]), ValueError, "examples × 4"),
        (torch.ones(2, 4), torch.tensor([0]), ValueError, "2 elements"),
        (torch.ones(2, 4), torch.tensor([0, 10]), ValueError, "0 to 9"),
        (torch.ones(2, 4), torch.tensor([0.0, 1.0]), TypeError, "float32"),
    ]:
        with pytest.raises(error, match=message):
            head(hidden, target)
    for arguments, message in [
        ({"num_classes": 1, "dim": 4}, "2 classes"),
        ({"num_classes": 10, "dim": 4, "sampler": "lsh"}, "lsh"),
        ({"num_classes": 10, "dim": 4, "class_counts": [1, 2]}, "10 counts"),
        ({"num_classes": 10, "dim": 4, "settings": {"lhs": {}}}, "lhs"),
    ]:
        with pytest.raises(ValueError, match=message):
            SampledSoftmaxLoss(**arguments)
    with pytest.raises(ValueError, match="k is 11"):
        head.topk(torch.ones(1, 4), 11)


def test_a_step_touches_only_its_candidates():
    """No work grows with the classes: only rows that were proposed have a gradient."""
    hidden, target = batch(dim=16, classes=50_000)
    for shared, rows in ((True, 16 + 20), (False, 16 * 21)):
        head = SampledSoftmaxLoss(50_000, 16, "uniform", 20, shared=shared)
        head(hidden, target).loss.backward()
        gradient = head.weight.grad.coalesce()
        assert gradient.indices().shape[1] <= rows
        assert set(target.tolist()) <= set(gradient.indices()[0].tolist())


# What each rank of a group runs: argv is the rank, the number of ranks and a folder.
RANK = """
import pathlib, sys, torch, torch.distributed as dist
from lookalike.torch import SampledSoftmaxLoss
torch.set_num_threads(1)
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
results = {}

def own(rows):
    count = len(rows) // size
    return rows[rank * count : (rank + 1) * count]

# A budget of all classes: the loss and gradients of full softmax.
given = torch.load(folder / "given.pt")
for sampler in ["mixed", "log-uniform", "uniform", "full"]:
    for training in [True, False]:
        everybody, counts = dist.group.WORLD, range(1, 42)
        head = SampledSoftmaxLoss(41, 12, sampler, 82, class_counts=counts, process_group=everybody)
        head.train(training)
        with torch.no_grad():
            head.weight.copy_(given["weight"][head.classes.start : head.classes.stop])
        hidden = own(given["hidden"]).clone().requires_grad_()
        result = head(hidden, own(given["target"]))
        result.loss.backward()
        dense = [p.grad.to_dense() if p.grad.is_sparse else p.grad for p in (head.weight, head.bias, hidden)]
        results[sampler, training] = [result.output.detach(), *dense]
        best = head.topk(hidden.detach(), 7)
        results[sampler, training].extend(best)

# Adaptive negatives on each rank.
for sampler in ["mixed", "lsh-embedding", "lsh-label"]:
    torch.manual_seed(1)
    centres = torch.randn(301, 16)
    head = SampledSoftmaxLoss(301, 16, sampler, 60, process_group=dist.group.WORLD)
    optimizer = torch.optim.SparseAdam(list(head.parameters()), lr=0.05)
    chance = torch.Generator().manual_seed(rank)
    for _ in range(150):
        target = torch.randint(301, (64,), generator=chance)
        optimizer.zero_grad()
        head(centres[target], target).loss.backward()
        assert head.weight.grad.is_sparse
        optimizer.step()
    head.eval()
    asked = torch.arange(300)
    results["learnt", sampler] = (head.predict(centres[own(asked)]) == own(asked)).float().mean()

try:
    head(centres[: 3 + rank], torch.zeros(3 + rank, dtype=torch.long))
except ValueError as error:
    results["refused"] = str(error)
torch.save(results, folder / f"rank-{rank}.pt")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_classes_are_shared_by_the_ranks_of_a_group(tmp_path):
    hidden, target = batch(examples=16, classes=41)
    whole = SampledSoftmaxLoss(41, 12, "full", class_counts=range(1, 42))
    given = {"weight": whole.weight.detach(), "hidden": hidden.detach(), "target": target}
    torch.save(given, tmp_path / "given.pt")
    size = 2
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(rank), str(size), str(tmp_path)]) for rank in range(size)]
    assert [rank.wait(timeout=300) for rank in ranks] == [0] * size
    found = [torch.load(pathlib.Path(tmp_path) / f"rank-{rank}.pt") for rank in range(size)]
    whole(hidden, target).loss.backward()
    expected = [whole.log_prob(hidden).gather(1, target.unsqueeze(1)).squeeze(1).detach()]
    expected += [whole.weight.grad, whole.bias.grad, hidden.grad]
    samplers = ["mixed", "log-uniform", "uniform", "full"]
    for key in [(sampler, training) for sampler in samplers for training in [True, False]]:
        of_ranks = [results[key] for results in found]
        joined = [torch.cat(parts) for parts in zip(*of_ranks, strict=True)]
        # The examples of a rank are half of the batch, and their gradients are those of a mean.
        joined[3] = joined[3] / size
        for got, want in zip(joined[:4], expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
        scores, classes = whole.topk(hidden.detach(), 7)
        torch.testing.assert_close(joined[4], scores)
        assert torch.equal(joined[5], classes)
    for results in found:
        assert "[3, 4]" in results["refused"]
        for sampler in ["mixed", "lsh-embedding", "lsh-label"]:
            assert results["learnt", sampler] > 0.9, (sampler, results["learnt", sampler])
