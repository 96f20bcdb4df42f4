#!/usr/bin/env python3
"""Are probabilities true? A row a data set, for docs/calibration.md.

    scripts/calibration.py DATA/cve_products DATA/citeulike_t …

A folder has `train.txt` and `test.txt` in the Extreme Classification format. Each is
trained on with the defaults of `lookalike train` and measured on its test file (or on
`--examples` of it, evenly spread): expected calibration error, log loss and Brier score
of first answers, and of all answers (of the best 20) with a probability of at least 0.5,
0.7 and 0.9 the share that is right.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

THRESHOLDS = (0.5, 0.7, 0.9)


def run(*command: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def sample(test: Path, most: int, out: Path) -> list[set[int]]:
    """Writes some of the examples that have labels, and gives their labels."""
    with test.open(encoding="utf-8") as file:
        header = file.readline().split()
        rows = [row for row in file if row.split(" ", 1)[0] and ":" not in row.split(" ", 1)[0]]
    count = min(most or len(rows), len(rows))
    rows = [rows[i * len(rows) // count] for i in range(count)]
    with out.open("w", encoding="utf-8") as file:
        file.write(f"{count} {header[1]} {header[2]}\n")
        file.writelines(rows)
    return [set(map(int, row.split(" ", 1)[0].split(","))) for row in rows]


def precisions(binary: str, model: Path, test: Path, labels: list[set[int]]) -> list[str]:
    answers = run(binary, "predict", model, test, "--top-k", 20, "--probabilities", "--format", "jsonl")
    given = [
        (probability, int(name) in truth)
        for line, truth in zip(answers.splitlines(), labels)
        for answer in [json.loads(line)]
        for name, probability in zip(answer["labels"], answer["scores"])
    ]
    cells = []
    for threshold in THRESHOLDS:
        right = [is_right for probability, is_right in given if probability >= threshold]
        cells.append(f"{sum(right) / len(right):.3f} ({len(right)})" if right else "– (0)")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--binary", default="target/release/lookalike")
    parser.add_argument("--examples", type=int, default=0, help="test examples to look at; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", nargs=argparse.REMAINDER, default=[], help="further flags of `train`")
    arguments = parser.parse_args()
    print("| data | examples | P@1 | ECE | log loss | Brier | right of ≥ 0.5 | of ≥ 0.7 | of ≥ 0.9 |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for folder in arguments.folders:
        with tempfile.TemporaryDirectory() as temporary:
            model, test = Path(temporary) / "model", Path(temporary) / "test.txt"
            labels = sample(folder / "test.txt", arguments.examples, test)
            flags = ["--seed", arguments.seed, "--without-training-state", "--quiet", *arguments.train]
            run(arguments.binary, "train", folder / "train.txt", "--model", model, *flags)
            found = json.loads(run(arguments.binary, "evaluate", model, test, "--json"))
            of = found["calibration"]
            cells = [f"{found['P@1']:.1f}", *(f"{of[name]:.3f}" for name in ("ECE", "log-loss", "Brier"))]
            cells += precisions(arguments.binary, model, test, labels)
            print(f"| {folder.name} | {len(labels)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
