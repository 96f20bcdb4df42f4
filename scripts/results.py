#!/usr/bin/env python3
"""Makes the tables of docs/experiments.md that compare samplers.

    scripts/results.py DATA [--out target/results] [--only NAME ...] [--list] [--quick]

DATA is a folder with a folder for each data set (geonames15000, cve_products,
citeulike_t, arxiv_authors, wiki_text), each with train.txt and test.txt. What is
derived from them (a variant with near-uniform labels, a generated data set of
the shape of Amazon-670K) is made here.

Each experiment writes its report to OUT/NAME; its tables, with the command, the
data, the seeds and the machine, replace what stands in docs/experiments.md between
`<!-- results: NAME -->` and `<!-- end -->`. Runs that are finished are not done
again, so it can be interrupted and started again; after a change of the program,
give a new OUT. Times are those of whatever else the machine does: let it do
nothing else.

--list prints the plan with the minutes that each experiment takes on two cores.
--quick does everything with few examples and one epoch, to see that it works;
it prints the tables instead of changing the page.

The tables against other tools are made by scripts/peers.py.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

from page import BINARY, ROOT, put_into_page


class Experiment(NamedTuple):
    """What to run on which data set, and about how long it takes on two cores."""

    data: str
    minutes: float
    command: str


# Data sets that are made from others: name, command.
DERIVED = {
    "cve_uniform": "data uniform cve_products/train.txt --test cve_products/test.txt --out cve_uniform",
    "amazon_shape": "data synth --preset amazon-670k --out amazon_shape",
}

# By the name of the place in the page. Full softmax and top-k cost classes ×
# examples an epoch; on the larger sets every method gets the same time instead
# of the same epochs, and what full softmax reaches in it is in the table.
EXPERIMENTS = {
    "geonames15000": Experiment(
        "geonames15000", 5, "compare geonames15000 --methods all --epochs 2 --test-examples 5000"
    ),
    "cve_products": Experiment(
        "cve_products", 5, "compare cve_products --methods all --seeds 3 --epochs 3 --test-examples 5000"
    ),
    "citeulike_t": Experiment("citeulike_t", 4, "compare citeulike_t --methods all --seeds 3 --epochs 4"),
    "cve_uniform": Experiment("cve_uniform", 2, "compare cve_uniform --epochs 5 --eval-every 1"),
    "arxiv_authors": Experiment(
        "arxiv_authors", 5, "compare arxiv_authors --epochs 2 --time-limit 30 --test-examples 4000"
    ),
    "wiki_text": Experiment("wiki_text", 5, "compare wiki_text --epochs 2 --time-limit 30 --test-examples 4000"),
    "amazon_shape": Experiment(
        "amazon_shape",
        4,
        "compare amazon_shape --methods full,lsh-embedding,lsh-label,log-uniform --epochs 1 --time-limit 30"
        " --eval-every 1 --test-examples 500",
    ),
    "sweep-budget-geonames15000": Experiment(
        "geonames15000",
        2,
        "sweep geonames15000 --methods lsh-embedding,lsh-label,log-uniform --vary budget=100,300,900 --epochs 1"
        " --eval-every 1 --test-examples 5000",
    ),
    "sweep-tables-geonames15000": Experiment(
        "geonames15000",
        2,
        "sweep geonames15000 --methods lsh-embedding --vary tables=50,100,200 --vary functions=3,4,5 --epochs 1"
        " --eval-every 1 --test-examples 5000",
    ),
    "sweep-refresh-geonames15000": Experiment(
        "geonames15000",
        1,
        "sweep geonames15000 --methods lsh-embedding,lsh-label --vary refresh=10,50,250 --epochs 1"
        " --eval-every 1 --test-examples 5000",
    ),
    "sweep-budget-cve_products": Experiment(
        "cve_products",
        1.5,
        "sweep cve_products --methods lsh-embedding,lsh-label,log-uniform --vary budget=100,300,900 --epochs 2"
        " --eval-every 2 --test-examples 5000",
    ),
    "sweep-tables-cve_products": Experiment(
        "cve_products",
        1,
        "sweep cve_products --methods lsh-embedding --vary tables=50,100,200 --vary functions=3,4,5 --epochs 2"
        " --eval-every 2 --test-examples 5000",
    ),
    "adapt-geonames15000": Experiment("geonames15000", 1, "adapt geonames15000 --epochs 2"),
}

QUICK = "--epochs 1 --hidden 16"
QUICK_LINES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, nargs="?", help="the folder of data sets")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target" / "results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these experiments")
    parser.add_argument("--list", action="store_true", help="print the plan and do nothing")
    parser.add_argument("--quick", action="store_true", help="with few examples; changes nothing in docs")
    options = parser.parse_args()
    unknown = set(options.only or []) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no experiment {', '.join(sorted(unknown))}; see --list")
    plan = {name: EXPERIMENTS[name] for name in options.only or EXPERIMENTS}
    if options.list:
        for name, experiment in plan.items():
            print(f"{name:28} {experiment.minutes:4g} min  lookalike {experiment.command}")
        print(f"{'in all':28} {sum(experiment.minutes for experiment in plan.values()):4g} min")
        return
    if options.data is None:
        parser.error("name the folder of data sets")

    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
    out = options.out.resolve() / ("quick" if options.quick else "full")
    work = out / "data"
    work.mkdir(parents=True, exist_ok=True)
    for name, experiment in plan.items():
        provide(experiment.data, options.data.resolve(), work, options.quick)
        tables = run(name, experiment.command, work, out, options.quick)
        if options.quick:
            print(tables)
        else:
            put_into_page(name, tables)


def provide(name: str, data: pathlib.Path, work: pathlib.Path, quick: bool) -> None:
    """Puts a data set into the working folder, so that commands need no long paths."""
    if (work / name / "test.txt").exists():
        return
    if name in DERIVED:
        source = DERIVED[name].split()[2].split("/")[0]
        if (data / source).is_dir():
            provide(source, data, work, quick)
        sizes = "--classes 2000 --train 2000 --test 200" if quick and name == "amazon_shape" else ""
        lookalike(f"{DERIVED[name]} {sizes}", work)
        return
    if not (data / name / "train.txt").exists():
        sys.exit(f"{data / name}: found no train.txt; {name} is one of the data sets of docs/experiments.md")
    if not quick:
        os.symlink(data / name, work / name)
        return
    (work / name).mkdir(exist_ok=True)
    for part in ("train.txt", "test.txt"):
        with open(data / name / part) as lines:
            head = [line for line, _ in zip(lines, range(QUICK_LINES))]
        _, features, classes = head[0].split()
        head[0] = f"{len(head) - 1} {features} {classes}\n"
        (work / name / part).write_text("".join(head))


def run(name: str, command: str, work: pathlib.Path, out: pathlib.Path, quick: bool) -> str:
    """Does an experiment and gives its tables."""
    folder = f"../{name}"
    if quick:
        command = re.sub(r" --(epochs|seeds|time-limit|eval-every) \S+", "", command) + f" {QUICK}"
    lookalike(f"{command} --out {folder}", work)
    tables = (out / name / "tables.md").read_text()
    return tables.replace(f" --out {folder}", "")


def lookalike(command: str, folder: pathlib.Path) -> None:
    print(f"\n$ lookalike {command}", flush=True)
    done = subprocess.run([BINARY, *command.split()], cwd=folder)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
