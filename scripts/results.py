#!/usr/bin/env python3
"""Makes every table of docs/results.md.

    scripts/results.py DATA [--out target/results] [--only NAME ...] [--list] [--quick]

DATA is a folder with a folder for each data set (geonames15000, cve_products,
citeulike_t, arxiv_authors, wiki_text), each with train.txt and test.txt. What is
derived from them (a variant with near-uniform labels, a generated data set of
the shape of Amazon-670K) is made here.

Each experiment writes its report to OUT/NAME; its tables, with the command, the
data, the seeds and the machine, replace what stands in docs/results.md between
`<!-- results: NAME -->` and `<!-- end -->`. Runs that are finished are not done
again, so it can be interrupted and started again. Times are those of whatever
else the machine does: let it do nothing else.

--quick does everything with few examples and one epoch, to see that it works;
it prints the tables instead of changing the page.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
BINARY = ROOT / "target" / "release" / "lookalike"

# Data sets that are made from others: name, command.
DERIVED = {
    "cve_uniform": "data uniform cve_products/train.txt --test cve_products/test.txt --out cve_uniform",
    "amazon_shape": "data synth --preset amazon-670k --out amazon_shape",
}

# The experiments: name, data set, command. The name is that of the place in the page.
EXPERIMENTS = {
    "geonames15000": ("geonames15000", "compare geonames15000 --methods all --seeds 3 --epochs 5"),
    "cve_products": ("cve_products", "compare cve_products --methods all --seeds 3 --epochs 10"),
    "citeulike_t": ("citeulike_t", "compare citeulike_t --methods all --seeds 3 --epochs 20"),
    "cve_uniform": ("cve_uniform", "compare cve_uniform --methods all --seeds 3 --epochs 20"),
    "arxiv_authors": ("arxiv_authors", "compare arxiv_authors --methods all --epochs 3 --test-examples 10000"),
    "wiki_text": ("wiki_text", "compare wiki_text --methods all --epochs 2 --test-examples 10000"),
    # Full softmax is slow at this size; ten minutes each show the time an epoch of every method.
    "amazon_shape": (
        "amazon_shape",
        "compare amazon_shape --epochs 2 --time-limit 600 --eval-every 0.5 --test-examples 2000",
    ),
    "sweep-budget-geonames15000": (
        "geonames15000",
        "sweep geonames15000 --methods lsh-embedding,lsh-label,log-uniform --vary budget=50,100,200,400,800 --epochs 3",
    ),
    "sweep-tables-geonames15000": (
        "geonames15000",
        "sweep geonames15000 --methods lsh-embedding --budget 400 --vary tables=50,100,200 --vary functions=3,4,5"
        " --epochs 3",
    ),
    "sweep-refresh-geonames15000": (
        "geonames15000",
        "sweep geonames15000 --methods lsh-embedding,lsh-label --vary refresh=10,50,250,1250 --epochs 3",
    ),
    "sweep-budget-cve_products": (
        "cve_products",
        "sweep cve_products --methods lsh-embedding,lsh-label,log-uniform --vary budget=50,100,200,400,800 --epochs 5",
    ),
    "sweep-tables-cve_products": (
        "cve_products",
        "sweep cve_products --methods lsh-embedding --budget 300 --vary tables=50,100,200 --vary functions=3,4,5"
        " --epochs 5",
    ),
    "adapt-geonames15000": ("geonames15000", "adapt geonames15000 --epochs 3"),
}

QUICK = "--epochs 1 --hidden 16"
QUICK_LINES = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, nargs="?", help="the folder of data sets")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target" / "results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these experiments")
    parser.add_argument("--list", action="store_true", help="print the experiments and do nothing")
    parser.add_argument("--quick", action="store_true", help="with few examples; changes nothing in docs")
    options = parser.parse_args()
    if options.list:
        for name, (_, command) in EXPERIMENTS.items():
            print(f"{name:32} lookalike {command}")
        return
    if options.data is None:
        parser.error("name the folder of data sets")
    unknown = set(options.only or []) - set(EXPERIMENTS)
    if unknown:
        parser.error(f"no experiment {', '.join(sorted(unknown))}; see --list")

    subprocess.run(["cargo", "build", "--release"], cwd=ROOT, check=True)
    out = options.out.resolve() / ("quick" if options.quick else "full")
    work = out / "data"
    work.mkdir(parents=True, exist_ok=True)
    for name in options.only or EXPERIMENTS:
        data, command = EXPERIMENTS[name]
        provide(data, options.data.resolve(), work, options.quick)
        tables = run(name, command, work, out, options.quick)
        if options.quick:
            print(tables)
        else:
            put_into_page(name, tables)


def provide(name: str, data: pathlib.Path, work: pathlib.Path, quick: bool) -> None:
    """Puts a data set into the working folder, so that commands need no long paths."""
    if (work / name / "train.txt").exists():
        return
    if name in DERIVED:
        source = DERIVED[name].split()[2].split("/")[0]
        if (data / source).is_dir():
            provide(source, data, work, quick)
        sizes = "--classes 2000 --train 2000 --test 200" if quick and name == "amazon_shape" else ""
        lookalike(f"{DERIVED[name]} {sizes}", work)
        return
    if not (data / name / "train.txt").exists():
        sys.exit(f"{data / name}: found no train.txt; {name} is one of the data sets of docs/results.md")
    if not quick:
        os.symlink(data / name, work / name)
        return
    (work / name).mkdir()
    for part in ["train.txt", "test.txt"]:
        with open(data / name / part) as lines:
            head = [line for line, _ in zip(lines, range(QUICK_LINES))]
        _, features, classes = head[0].split()
        head[0] = f"{len(head) - 1} {features} {classes}\n"
        (work / name / part).write_text("".join(head))


def run(name: str, command: str, work: pathlib.Path, out: pathlib.Path, quick: bool) -> str:
    """Does an experiment and gives its tables."""
    folder = f"../{name}"
    if quick:
        command = re.sub(r" --(epochs|seeds|time-limit) \S+", "", command) + f" {QUICK}"
    lookalike(f"{command} --out {folder}", work)
    tables = (out / name / "tables.md").read_text()
    return tables.replace(f" --out {folder}", "")


def lookalike(command: str, folder: pathlib.Path) -> None:
    print(f"\n$ lookalike {command}", flush=True)
    done = subprocess.run([BINARY, *command.split()], cwd=folder)
    if done.returncode != 0:
        sys.exit(done.returncode)


def put_into_page(name: str, tables: str) -> None:
    page = PAGE.read_text()
    place = re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(page):
        sys.exit(f"{PAGE} has no place for {name}: add <!-- results: {name} --> and <!-- end -->")
    PAGE.write_text(place.sub(lambda found: f"{found[1]}\n{tables}\n{found[2]}", page))


if __name__ == "__main__":
    main()
