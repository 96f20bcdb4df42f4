#!/usr/bin/env python3
"""Holds a default of `lookalike train` against others, each data set left out in turn.

    scripts/defaults.py DATA... --try "" "--labels-counted 1" "--retrieve 1000" [--seeds 1 2]

DATA is a folder with train.txt, and perhaps valid.txt; test files are never read.
Where there is no valid.txt a tenth of train.txt is the validation part (`lookalike
data split`, seed 1). Each text after --try is a set of flags, the empty one the
defaults as they are; each is trained on every data set.

A choice is worth the mean over data sets of ln(value / value of the first choice),
a value being the mean of P@1, P@3 and P@5. For each data set in turn the choice
that is worth most on all *other* data sets is taken, and the table says what it
gives on this one: so well would the rule have done on data nobody tuned for. Where
that is below the first choice, the rule is not one for all.

Runs that are finished are kept in target/defaults and not done again; a new build
of lookalike is another tool. Prints a table in Markdown.
"""

import argparse
import hashlib
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import time

from page import BINARY, ROOT

FOLDER = ROOT / "target" / "defaults"
METRICS = ("P@1", "P@3", "P@5")


def main() -> None:
    options = arguments()
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = [data.resolve().name for data in options.data]
    found = {}
    for name, data in zip(names, options.data):
        files = parts(data.resolve())
        for flags in options.choices:
            runs = [run(name, files, flags, seed, options.threads) for seed in options.seeds]
            found[name, flags] = {key: statistics.mean(run[key] for run in runs) for key in runs[0]}
            print(f"{name} {shown(flags)}: {precisions(found[name, flags])}", file=sys.stderr, flush=True)
    print(table(names, options.choices, found))
    print(f"\nSeeds {' '.join(map(str, options.seeds))}, {options.threads} threads, validation parts.")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, nargs="+", help="folders with train.txt")
    parser.add_argument("--try", dest="choices", nargs="+", required=True, help="flags of train to choose from")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def parts(data: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """What is trained on and what is chosen on."""
    if (data / "valid.txt").exists():
        return data / "train.txt", data / "valid.txt"
    folder = FOLDER / data.name
    if not (folder / "test.txt").exists():
        command = [BINARY, "data", "split", data / "train.txt", "--test-fraction", "0.1", "--out", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return folder / "train.txt", folder / "test.txt"


def run(name: str, files: tuple[pathlib.Path, pathlib.Path], flags: str, seed: int, threads: int) -> dict:
    """Precisions and seconds of one training."""
    key = hashlib.sha256(json.dumps([flags.split(), seed, threads]).encode()).hexdigest()[:16]
    kept = FOLDER / f"{name}-{key}.json"
    if kept.exists() and kept.stat().st_mtime > BINARY.stat().st_mtime:
        return json.loads(kept.read_text())
    train, valid = files
    # Evaluated once, after the last epoch: the time is that of training alone.
    command = [BINARY, "train", train, "--test", valid, "--seed", str(seed), "--threads", str(threads), "--k", "1,3,5"]
    start = time.perf_counter()
    done = subprocess.run([*command, "--eval-epochs", "1000", *flags.split()], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name} {flags}: {done.stderr.strip()}")
    result = {metric: float(re.search(rf"^{metric}\s+([\d.]+)", done.stdout, re.MULTILINE).group(1)) for metric in METRICS}
    result["seconds"] = time.perf_counter() - start
    kept.write_text(json.dumps(result) + "\n")
    return result


def worth(name: str, flags: str, choices: list[str], found: dict) -> float:
    value = lambda flags: statistics.mean(found[name, flags][metric] for metric in METRICS)
    return math.log(value(flags) / value(choices[0]))


def table(names: list[str], choices: list[str], found: dict) -> str:
    head = ["data", *map(shown, choices), "chosen by the others", "gives, in %"]
    lines = [head, [":---"] + ["---:"] * (len(head) - 1)]
    gains = []
    for name in names:
        others = [other for other in names if other != name]
        mean = lambda flags: statistics.mean(worth(other, flags, choices, found) for other in others) if others else 0.0
        chosen = max(choices, key=mean)
        gains.append(worth(name, chosen, choices, found))
        cells = [precisions(found[name, flags]) for flags in choices]
        lines.append([name, *cells, shown(chosen), f"{100 * math.expm1(gains[-1]):+.2f}"])
    lines.append(["mean", *[""] * len(choices), "", f"{100 * math.expm1(statistics.mean(gains)):+.2f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shown(flags: str) -> str:
    return f"`{flags}`" if flags else "as it is"


def precisions(run: dict) -> str:
    return f"{' / '.join(f'{run[metric]:.2f}' for metric in METRICS)}, {run['seconds']:.0f} s"


if __name__ == "__main__":
    main()
