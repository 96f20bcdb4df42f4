#!/usr/bin/env python3
"""How long one answer takes, beside PECOS's: one thread, one query at a time, in process.

    scripts/answers.py FOLDER... --prepare      trains what is not there yet
    scripts/answers.py FOLDER... [--turns 3] [--queries 1000]

FOLDER holds train.txt and test.txt in the Extreme Classification format; models are kept there as `model`
(lookalike, as `train` makes it by default) and `pecos` (XR-Linear with its defaults). The two are measured in turns,
each in a process of its own that has loaded its model before the clock starts: `lookalike bench answers`, and
PECOS's `predict` of one row, as its Python package offers it. Of the turns the one with the smallest median counts.
P@k is that of `lookalike evaluate` on test.txt, exact and fast. PECOS's Python is that of scripts/peers.py unless
--pecos names another.
"""

import argparse
import json
import pathlib
import subprocess
import sys

from page import BINARY, ROOT

WORKER = ROOT / "scripts" / "peer_runs" / "pecos_answers.py"
HEADS = ["data", "classes", "PECOS", "exact", "fast", "× PECOS", "p99 ÷ median", "recall", "P@1 / 3 / 5 exact", "fast"]


def main() -> None:
    options = arguments()
    if options.prepare:
        for folder in options.folders:
            prepare(folder, options)
        return
    print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS), flush=True)
    for folder in options.folders:
        print("| " + " | ".join(row(folder, options)) + " |", flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--prepare", action="store_true", help="train what is missing, and measure nothing")
    parser.add_argument("--binary", default=BINARY, type=pathlib.Path)
    parser.add_argument("--pecos", default=ROOT / "target" / "peers" / "pecos" / "bin" / "python", type=pathlib.Path)
    parser.add_argument("--queries", default=1000, type=int)
    parser.add_argument("--turns", default=3, type=int)
    parser.add_argument("--skip-quality", action="store_true", help="times alone, without P@k")
    return parser.parse_args()


def prepare(folder: pathlib.Path, options: argparse.Namespace) -> None:
    if not (folder / "model").exists():
        run(options.binary, "train", folder / "train.txt", "--model", folder / "model", "--without-training-state")
    if not (folder / "pecos").exists():
        run(options.pecos, WORKER, "prepare", folder)


def row(folder: pathlib.Path, options: argparse.Namespace) -> list[str]:
    ours, theirs = [], []
    bench = [options.binary, "bench", "answers", folder / "model", folder / "test.txt"]
    for _ in range(options.turns):
        ours.append(json.loads(run(*bench, "--queries", options.queries, "--json")))
        theirs.append(json.loads(run(options.pecos, WORKER, "measure", folder, options.queries)))
    # Whatever else the machine does makes a turn slower, never faster.
    ours = min(ours, key=lambda found: found["fast"]["median-ms"])
    theirs = min(theirs, key=lambda found: found["latency_ms_median"])
    exact, fast, median = ours["exact"], ours["fast"], theirs["latency_ms_median"]
    quality = [""] * 2 if options.skip_quality else [precision(folder, options, search) for search in ("exact", "fast")]
    return [
        folder.name,
        f"{ours['classes']:,}",
        f"{median:.3f} ({theirs['latency_ms_p99']:.3f})",
        f"{exact['median-ms']:.3f} ({exact['p99-ms']:.3f})",
        f"{fast['median-ms']:.3f} ({fast['p99-ms']:.3f})",
        f"{fast['median-ms'] / median:.2f}",
        f"{fast['p99-ms'] / fast['median-ms']:.1f}",
        f"{100 * ours['recall']:.1f}%" + (f" at {ours['effort']}" if ours["effort"] else ""),
        *quality,
    ]


def precision(folder: pathlib.Path, options: argparse.Namespace, search: str) -> str:
    found = json.loads(run(options.binary, "evaluate", folder / "model", folder / "test.txt", "--search", search, "--json"))
    return " / ".join(f"{found[f'P@{k}']:.2f}" for k in (1, 3, 5))


def run(*command) -> str:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))}")
    return done.stdout


if __name__ == "__main__":
    main()
