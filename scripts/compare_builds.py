#!/usr/bin/env python3
"""Trains with two builds of lookalike and compares the models, byte by byte.

    scripts/compare_builds.py OLD_BINARY NEW_BINARY [--data FOLDER] [--exact] [--only WORD]

The same settings, data and seed must give the same model whatever was changed
inside. So every sampler is trained by both builds, with and without a sparse part,
on examples of one label and of several, with one and two hidden layers, stored in
either form, resumed at the end of an epoch and within one; and every tensor of
model.safetensors and training.safetensors is compared, and the answers besides.

A difference is an error (exit code 1) unless it is one of the EXCEPTIONS below,
each with its reason and with what must still hold. `--exact` allows none of them:
for two builds on the same side of a change of behaviour.

Data is generated in a temporary folder, or in FOLDER, where it is kept and found
again. Takes half a minute on two cores.
"""

import argparse
import array
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

SAMPLERS = "lsh-embedding lsh-label mixed full top-k log-uniform frequency uniform nce".split()
SHAPE = "--classes 150 --features 300 --train 600 --test 400 --classes-per-cluster 8".split()
#: Labels an example; with few features, sparse rows start from logarithms of means.
DATA = {
    "single": "--labels-per-example 1 --features-per-example 3".split(),
    "several": "--labels-per-example 2.5 --features-per-example 12".split(),
}
#: Few near classes, so that there is room in the budget for what the sampler finds.
SETTINGS = (
    "--preset plain --batch 32 --budget 20 --tables 40 --functions 2 --refresh 5 --sparse-negatives 6 --seed 3"
).split()
TENSOR_FILES = ("model.safetensors", "training.safetensors")


# ---------------------------------------------------------------- what is compared


@dataclass(frozen=True)
class Case:
    """A training run, perhaps resumed: each of `runs` are the flags of one more."""

    name: str
    data: str
    sampler: str
    sparse: bool
    epochs: int
    runs: tuple

    @property
    def ends_within_epoch(self):
        return "--time-limit" in self.runs[-1]


def make_case(sampler, data, sparse, epochs, *flags, hidden="12", resume=None):
    """`resume` are the epochs of a first run; 0 for a single step."""
    first = ["--sampler", sampler, "--sparse", str(sparse).lower(), "--hidden", hidden, *SETTINGS, *flags]
    last = ["--epochs", str(epochs)]
    one_step = ["--time-limit", "0"]
    words = [sampler, data, "sparse" if sparse else "plain", f"{epochs} epochs, hidden {hidden}", *flags]
    if resume is None:
        runs = [first + last]
    elif resume == 0:
        words.append("one step, resumed")
        runs = [first + last + one_step, ["--resume"]]
    else:
        words.append(f"resumed after {resume} and within {resume + 1}")
        runs = [first + ["--epochs", str(resume)], ["--resume", *last, *one_step], ["--resume", *last]]
    return Case(" ".join(words), data, sampler, sparse, epochs, tuple(tuple(run) for run in runs))


def cases():
    for sampler, sparse in itertools.product(SAMPLERS, (False, True)):
        for data, epochs in itertools.product(DATA, (1, 3)):
            yield make_case(sampler, data, sparse, epochs)
        yield make_case(sampler, "several", sparse, 3, "--activation", "relu", hidden="12,8")
    for sparse in (False, True):
        yield make_case("lsh-embedding", "several", sparse, 3, "--storage", "bf16")
        yield make_case("lsh-embedding", "several", sparse, 3, "--adam", "exact")
        yield make_case("lsh-embedding", "several", sparse, 3, "--hash", "simhash")
        yield make_case("full", "several", sparse, 3, resume=0)
        yield make_case("full", "several", sparse, 3, resume=1)
    # A single step, where the model is saved within its first epoch.
    for sparse in (False, True):
        yield make_case("full", "several", sparse, 1, "--time-limit", "0")


# ---------------------------------------------------------------- what may differ


@dataclass
class Difference:
    """A tensor that is not the same in both, or the answers."""

    tensor: str
    #: The largest difference of two numbers; infinite if they cannot be compared.
    size: float
    #: The largest number.
    scale: float
    #: How the numbers are stored.
    kind: str = "F32"

    def is_rounding(self):
        return self.size <= ROUNDING[self.kind] * self.scale

    def __str__(self):
        return f"{self.tensor} by {self.size:.2g}"


@dataclass(frozen=True)
class Intended:
    """A difference that is meant to be."""

    reason: str
    #: Whether it is what is seen between two models of a case.
    explains: callable


def priors_left_the_bias(case, old, new, difference):
    """The bias of old is that of new and what the frequency of each class adds."""
    header = old.config.get("sparse")
    if difference.tensor != "output.bias" or header is None or not crosses_format_4(old, new):
        return False
    prior = {"centroid": 0.15, "log-mean": 1.0}[header["start"]]
    pairs = zip(old.tensors["output.bias"], new.tensors["output.bias"], old.tensors["class_counts"])
    wrong = max(
        abs(before - after - header["blend"] * prior * math.log(max(count, 1))) for before, after, count in pairs
    )
    return wrong <= ROUNDING["F32"] * max(1.0, difference.scale)


def priors_were_rounded(case, old, new, difference):
    """Adding priors at the end of an epoch and taking them back at the next start
    rounded the bias; all that was trained from it differs by as much."""
    return case.sparse and case.epochs > 1 and crosses_format_4(old, new) and difference.is_rounding()


def saved_within_an_epoch(case, old, new, difference):
    return case.ends_within_epoch and case.sparse and difference.tensor == ANSWERS and crosses_format_4(old, new)


def label_turns_are_drawn_elsewhere(case, old, new, difference):
    return case.data == "several" and case.sampler in ("lsh-label", "mixed") and is_as_good(old, new)


def top_scores_tie(case, old, new, difference):
    """A few other negatives make models that are hardly apart."""
    return case.sampler == "top-k" and difference.size <= 0.1 * difference.scale and is_as_good(old, new)


def held_out_examples_are_listed(case, old, new, difference):
    return difference.tensor == "held_out" and crosses_format_4(old, new) and "held_out" not in old.raw


#: What rounding grows to over a few dozen steps, relative to a tensor's largest number.
ROUNDING = {"F32": 1e-5, "BF16": 1e-2}
#: Points of P@1 that two models may be apart which drew other negatives.
AS_GOOD = 6.0

EXCEPTIONS = [
    Intended(
        "class priors are a part of the sparse score since format 4, not of output.bias",
        priors_left_the_bias,
    ),
    Intended(
        "before format 4 priors were added to the bias and taken back each epoch, which rounds",
        priors_were_rounded,
    ),
    Intended(
        "before format 4 a model saved within an epoch answered without priors",
        saved_within_an_epoch,
    ),
    Intended(
        "with several labels, which one asks the tables is drawn from a stream of its own",
        label_turns_are_drawn_elsewhere,
    ),
    Intended(
        "the last of the k best classes may be another where scores tie but for rounding",
        top_scores_tie,
    ),
    Intended(
        "since format 4 the training state lists the examples held out from training",
        held_out_examples_are_listed,
    ),
]


def crosses_format_4(old, new):
    return old.config["format-version"] < 4 <= new.config["format-version"]


def is_as_good(old, new):
    return abs(old.precision() - new.precision()) <= AS_GOOD


# ---------------------------------------------------------------- models on the disk


ANSWERS = "answers"
NUMBERS = {"F32": "f", "U32": "I", "U64": "Q", "BF16": "H"}


def read_safetensors(path):
    """The raw bytes and the type of each tensor: a length, a JSON header, the bytes."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    data = memoryview(content)[8 + length :]
    return {name: (entry["dtype"], bytes(data[slice(*entry["data_offsets"])])) for name, entry in header.items()}


def as_numbers(kind, content):
    if kind == "BF16":
        # A bf16 number is the upper half of an f32.
        halves = array.array("H", content)
        content = array.array("I", (half << 16 for half in halves)).tobytes()
        kind = "F32"
    return array.array(NUMBERS[kind], content)


@dataclass
class Model:
    binary: str
    folder: pathlib.Path
    test: pathlib.Path
    config: dict = field(init=False)
    raw: dict = field(init=False)

    def __post_init__(self):
        self.config = json.loads((self.folder / "config.json").read_text())
        self.raw = {}
        for name in TENSOR_FILES:
            self.raw.update(read_safetensors(self.folder / name))

    @property
    def tensors(self):
        return {name: as_numbers(*content) for name, content in self.raw.items()}

    def answers(self):
        lines = run(self.binary, "predict", self.folder, self.test, "--top-k", "5", "--format", "jsonl")
        return [json.loads(line) for line in lines.splitlines()]

    def precision(self):
        return json.loads(run(self.binary, "evaluate", self.folder, self.test, "--json"))["P@1"]


def run(binary, *arguments):
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{binary} {' '.join(map(str, arguments))}\nended with {done.returncode}: {done.stderr}")
    return done.stdout


def train(binary, case, data, folder):
    # Builds that know how to train on the best of many classes are asked for all, as
    # those before did.
    all_classes = ["--retrieve", "0"] if "--retrieve" in run(binary, "train", "--help") else []
    for flags in case.runs:
        run(binary, "train", data / "train.txt", "--model", folder, "--quiet", *all_classes, *flags)
    return Model(binary, folder, data / "test.txt")


def differences(old, new):
    for name in sorted(old.raw.keys() | new.raw.keys()):
        before, after = old.raw.get(name), new.raw.get(name)
        if before == after:
            continue
        if before and after and before[0] == after[0] and len(before[1]) == len(after[1]):
            pairs = list(zip(as_numbers(*before), as_numbers(*after)))
            size, scale = max(abs(a - b) for a, b in pairs), max(abs(a) for a, _ in pairs)
            yield Difference(name, size, scale, before[0])
        else:
            yield Difference(name, math.inf, 1.0)
    yield from compare_answers(old.answers(), new.answers())


def compare_answers(old, new):
    """Scores class by class; a class that only one has may score as the other's last."""
    size, scale = 0.0, 1.0
    for pair in zip(old, new, strict=True):
        before, after = (dict(zip(answer["labels"], answer["scores"])) for answer in pair)
        last_before, last_after = min(before.values()), min(after.values())
        for label in before.keys() | after.keys():
            a, b = before.get(label, last_before), after.get(label, last_after)
            size, scale = max(size, abs(a - b)), max(scale, abs(a))
    difference = Difference(ANSWERS, size, scale)
    # Equal tensors may be added up in another order.
    if not difference.is_rounding():
        yield difference


# ---------------------------------------------------------------- the comparison


def compare(case, binaries, data, work, exceptions):
    """A verdict, and whether the case passes."""
    models = [train(binary, case, data / case.data, work / name) for name, binary in binaries.items()]
    intended, unintended = set(), []
    for difference in differences(*models):
        reasons = (number for number, known in enumerate(exceptions, 1) if known.explains(case, *models, difference))
        number = next(reasons, None)
        if number is None:
            unintended.append(str(difference))
        else:
            intended.add(str(number))
    if unintended:
        more = f" and {len(unintended) - 3} more" if len(unintended) > 3 else ""
        return f"DIFFERENT: {', '.join(unintended[:3])}{more}", False
    if intended:
        return f"differs as intended ({', '.join(sorted(intended))})", True
    return "same", True


def make_data(binary, folder):
    for name, flags in DATA.items():
        if not (folder / name / "test.txt").exists():
            run(binary, "data", "synth", *SHAPE, *flags, "--out", folder / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--data", type=pathlib.Path, help="where generated data is kept")
    parser.add_argument("--exact", action="store_true", help="allow no exception")
    parser.add_argument("--only", default="", help="cases whose names hold this")
    arguments = parser.parse_args()
    exceptions = [] if arguments.exact else EXCEPTIONS
    binaries = {"old": arguments.old, "new": arguments.new}
    with tempfile.TemporaryDirectory() as temporary:
        data = arguments.data or pathlib.Path(temporary) / "data"
        make_data(arguments.old, data)
        chosen = [case for case in cases() if arguments.only in case.name]
        width = max(len(case.name) for case in chosen)
        verdicts = []
        for number, case in enumerate(chosen):
            verdict, passes = compare(case, binaries, data, pathlib.Path(temporary) / str(number), exceptions)
            print(f"{case.name:{width}}  {verdict}", flush=True)
            verdicts.append((verdict, passes))
    failed = sum(not passes for _, passes in verdicts)
    same = sum(verdict == "same" for verdict, _ in verdicts)
    print(f"\n{len(verdicts)} cases: {same} the same, {len(verdicts) - same - failed} as intended, {failed} different")
    for number, exception in enumerate(exceptions, 1):
        print(f"({number}) {exception.reason}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
