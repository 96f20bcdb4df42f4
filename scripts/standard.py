#!/usr/bin/env python3
"""Runs `lookalike train` with its defaults on folders of the Extreme Classification
Repository, and prints the result beside published figures.

    scripts/standard.py EURLex-4K Wiki10-31K Amazon-670K

A folder holds the data set's files with bag-of-words features as the Repository packs
them: `train.txt` and `test.txt`, or names that end so, with a line `examples features
labels` first. Its name says which data set it is. Published figures are from omikuji's
README (P@1/3/5 of Parabel and Bonsai, default settings); where there are none, and for
data sets that were not given, columns stay empty.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

# By name without case and signs: the Repository's name, Parabel, Bonsai.
PUBLISHED = {
    "eurlex4k": ("EURLex-4K", (82.2, 68.8, 57.6), (82.8, 69.4, 58.1)),
    "wiki1031k": ("Wiki10-31K", None, None),
    "amazoncat13k": ("AmazonCat-13K", None, None),
    "amazon670k": ("Amazon-670K", (44.9, 39.8, 36.0), (45.5, 40.3, 36.5)),
    "wikilshtc325k": ("WikiLSHTC-325K", (65.0, 43.2, 32.0), (66.6, 44.5, 33.0)),
}


def files(folder: Path) -> tuple[Path, Path]:
    """The training and the test file of a folder."""
    found = []
    for ending in ("train.txt", "test.txt"):
        named = sorted(path for path in folder.iterdir() if path.name.lower().endswith(ending))
        if len(named) != 1:
            names = ", ".join(path.name for path in named) or "none"
            sys.exit(f"{folder}: expected one file whose name ends with {ending}, found {names}")
        found.append(named[0])
    return found[0], found[1]


def check(path: Path) -> None:
    """Three numbers first, as the Repository writes them."""
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline()
    if not re.fullmatch(r"\d+ \d+ \d+\s*", header):
        sys.exit(f"{path}:1: expected `examples features labels`, found {header.strip()!r}")


def measure(binary: str, folder: Path, seed: int) -> tuple[tuple[float, ...], float]:
    """P@1, P@3 and P@5 with the defaults, and the time by the clock."""
    train, test = files(folder)
    check(train)
    check(test)
    start = time.monotonic()
    command = [binary, "train", str(train), "--test", str(test), "--seed", str(seed), "--quiet"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(command)}: {run.stderr}")
    values = dict(line.split()[:2] for line in run.stdout.splitlines() if line.startswith("P@"))
    return tuple(float(values[f"P@{k}"]) for k in (1, 3, 5)), time.monotonic() - start


def written(values: tuple[float, ...] | None) -> str:
    return "" if values is None else " / ".join(f"{value:.1f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--binary", default="target/release/lookalike")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    arguments = parser.parse_args()
    ours = {}
    for folder in arguments.folders:
        name = re.sub(r"[^a-z0-9]", "", folder.resolve().name.lower())
        runs = [measure(arguments.binary, folder, seed) for seed in arguments.seeds]
        means = tuple(sum(values) / len(runs) for values in zip(*(run[0] for run in runs)))
        ours[name] = (folder.resolve().name, means, sum(run[1] for run in runs) / len(runs))
    print("P@1 / P@3 / P@5; ours: the mean of seeds", *arguments.seeds)
    print("\n| data | lookalike | time | Parabel | Bonsai |\n|---|---|---:|---|---|")
    for name in [*PUBLISHED, *(name for name in ours if name not in PUBLISHED)]:
        title, parabel, bonsai = PUBLISHED.get(name) or (ours[name][0], None, None)
        _, means, seconds = ours.get(name, ("", None, None))
        clock = "" if seconds is None else f"{seconds:.0f} s"
        print(f"| {title} | {written(means)} | {clock} | {written(parabel)} | {written(bonsai)} |")


if __name__ == "__main__":
    main()
