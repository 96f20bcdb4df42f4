#!/usr/bin/env python3
"""Mutation testing: are the library's tests able to fail?

Puts one small change after another into the library (cargo-mutants: a function that
returns a constant, a `<` for a `<=`, a `-` for a `+`) and runs the library's own
tests on each. A change that no test notices is printed: a test is missing, or the
line is not needed.

    cargo install cargo-mutants
    scripts/mutants.py                  # 30 mutants of each folder, the same ones every time
    scripts/mutants.py --sample 0       # all of them: many hours
    scripts/mutants.py --folders loss optim --seed 2

What cargo-mutants wrote stays in target/mutants/FOLDER.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = "crates/lookalike/src"
FOLDERS = ["hashing", "sampling", "loss", "optim", "train", "metrics", "predict"]
# Their own tests are no subject of tests.
NOT_MUTATED = ["**/tests.rs"]


def main() -> None:
    arguments = parse_arguments()
    totals = {}
    for folder in arguments.folders:
        chosen = choose(mutants_of(folder), arguments.sample, arguments.seed)
        outcomes = run(folder, chosen)
        totals[folder] = collections.Counter(summary for summary, _ in outcomes)
        for summary, name in outcomes:
            if summary == "MissedMutant":
                print(f"missed: {name}", flush=True)
    print_table(totals)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", nargs="+", choices=FOLDERS, default=FOLDERS)
    parser.add_argument("--sample", type=int, default=30, help="mutants of each folder; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    return parser.parse_args()


def cargo_mutants(folder: str, *arguments: str) -> list[str]:
    excluded = [part for glob in NOT_MUTATED for part in ("--exclude", glob)]
    files = ["--file", f"{SOURCE}/{folder}/**/*.rs"]
    return ["cargo", "mutants", "--package", "lookalike", *files, *excluded, *arguments]


def mutants_of(folder: str) -> list[str]:
    listed = subprocess.run(
        cargo_mutants(folder, "--list", "--json"), cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [mutant["name"] for mutant in json.loads(listed.stdout)]


def choose(names: list[str], count: int, seed: int) -> list[str]:
    if count == 0 or count >= len(names):
        return names
    return random.Random(seed).sample(names, count)


def run(folder: str, names: list[str]) -> list[tuple[str, str]]:
    """Tries the mutants; what became of each, with its name."""
    exactly = "^(" + "|".join(re.escape(name) for name in names) + ")$"
    output = ROOT / "target" / "mutants" / folder
    output.mkdir(parents=True, exist_ok=True)
    # A missed mutant is an exit code of its own, not a failure of this script.
    subprocess.run(cargo_mutants(folder, "--re", exactly, "--output", str(output), "--colors", "never"), cwd=ROOT)
    outcomes = json.loads((output / "mutants.out" / "outcomes.json").read_text())["outcomes"]
    return [(o["summary"], o["scenario"]["Mutant"]["name"]) for o in outcomes if o["scenario"] != "Baseline"]


def print_table(totals: dict[str, collections.Counter]) -> None:
    print("\n| folder | caught | missed | without an end | does not compile | caught of viable |")
    print("|---|---:|---:|---:|---:|---:|")
    for folder, count in totals.items():
        caught, missed, endless = (count[name] for name in ("CaughtMutant", "MissedMutant", "Timeout"))
        viable = caught + missed + endless
        share = f"{100 * (caught + endless) / viable:.0f}%" if viable else "–"
        print(f"| {folder} | {caught} | {missed} | {endless} | {count['Unviable']} | {share} |")


if __name__ == "__main__":
    main()
