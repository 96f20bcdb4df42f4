#!/usr/bin/env python3
"""Trains on a stream in parts, with new classes in each, and on all of it at once.

    scripts/stream.py DATA... [--flags "--epochs 2 --rehearse 0.35"] [--validate] [--examples N] [--seed 1] [--page]

DATA is a folder with train.txt and test.txt in the Extreme Classification format.
Each class has a part in which it arrives; seven in ten of its examples come with it,
the others in any part from then on. Classes and features are numbered in the order
they arrive, so that each part has sizes of its own. An example comes when all its
labels have. The parts are about equally large.

The first part is trained with `lookalike train`, each further one with `lookalike
train --from`, the earlier examples rehearsed from what the model keeps of them or, where it
keeps none, from the files of the parts before. Against it: one training on all parts.
Measured on the test file: P@1 of the examples whose labels were all there before the
last part (old), and of those with a label that came with it (new). Times are those of
training alone, as the models record them; look at their ratio. Flags are chosen with
--validate: a tenth of the training examples then takes the place of the test file.

Everything is in target/stream/DATA; --page puts the tables into docs/incremental.md.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess

from page import BINARY, ROOT, put_into_page

# The share of classes that arrive in each part.
ARRIVING = [0.28, 0.22, 0.19, 0.17, 0.14]
# The share of a class's examples that come with it.
WITH_CLASS = 0.7


def main() -> None:
    options = arguments()
    for data in options.data:
        folder = ROOT / "target" / "stream" / data.name
        folder.mkdir(parents=True, exist_ok=True)
        parts, sizes = split(data, folder, options)
        stream = [train_part(folder, parts, part, options) for part in range(len(parts))]
        whole = train_whole(folder, parts, options)
        text = f"{table(sizes, stream, whole)}\n\n{foot(data, stream, whole, options)}"
        print(f"\n## {data.name}\n\n{text}", flush=True)
        if options.page:
            put_into_page(f"stream-{data.name}", text, ROOT / "docs" / "incremental.md")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, nargs="+", help="folders with train.txt and test.txt")
    parser.add_argument("--flags", default="", help="of each further part; the first and the whole have the defaults")
    parser.add_argument("--validate", action="store_true", help="test on training examples that are left out")
    parser.add_argument("--examples", type=int, help="take so many training examples at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--page", action="store_true", help="put the tables into docs/incremental.md")
    return parser.parse_args()


def read(path: pathlib.Path) -> list[tuple[list[int], list[tuple[int, str]]]]:
    rows = []
    with path.open() as lines:
        next(lines)
        for line in lines:
            labels, _, features = line.rstrip("\n").partition(" ")
            pairs = (pair.split(":") for pair in features.split())
            rows.append(([int(label) for label in labels.split(",") if label], [(int(f), v) for f, v in pairs]))
    return rows


def split(data: pathlib.Path, folder: pathlib.Path, options: argparse.Namespace):
    """Writes the parts and the test files; gives their paths and how many classes each brings."""
    chance = random.Random(options.seed)
    train, test = read(data / "train.txt"), [] if options.validate else read(data / "test.txt")
    if options.validate:
        chance.shuffle(train)
        test, train = train[: len(train) // 10], train[len(train) // 10 :]
    train = [row for row in train if row[0]]
    if options.examples:
        train = chance.sample(train, min(options.examples, len(train)))
    arrival: dict[int, int] = {}
    rows: list[list] = [[] for _ in ARRIVING]
    for labels, features in train:
        for label in labels:
            if label not in arrival:
                arrival[label] = chance.choices(range(len(ARRIVING)), ARRIVING)[0]
        first = max(arrival[label] for label in labels)
        part = first if chance.random() < WITH_CLASS else chance.randrange(first, len(ARRIVING))
        rows[part].append((labels, features))
    classes: dict[int, int] = {}
    columns: dict[int, int] = {}
    parts, sizes = [], []
    for part, examples in enumerate(rows):
        before = len(classes)
        for labels, features in examples:
            for label in labels:
                classes.setdefault(label, len(classes))
            for feature, _ in features:
                columns.setdefault(feature, len(columns))
        path = folder / f"part{part + 1}.txt"
        write(path, examples, classes, columns)
        parts.append(path)
        sizes.append((len(examples), len(classes) - before, before))
    everything = [row for examples in rows for row in examples]
    write(folder / "all.txt", everything, classes, columns)
    test = [row for row in test if row[0] and all(label in classes for label in row[0])]
    last = sizes[-1][2]
    is_new = [any(classes[label] >= last for label in labels) for labels, _ in test]
    write(folder / "new.txt", [row for row, new in zip(test, is_new) if new], classes, columns)
    write(folder / "old.txt", [row for row, new in zip(test, is_new) if not new], classes, columns)
    return parts, [(examples, new) for examples, new, _ in sizes]


def write(path: pathlib.Path, rows: list, classes: dict[int, int], columns: dict[int, int]) -> None:
    with path.open("w") as out:
        out.write(f"{len(rows)} {len(columns)} {len(classes)}\n")
        for labels, features in rows:
            known = sorted((columns[feature], value) for feature, value in features if feature in columns)
            ids = ",".join(str(classes[label]) for label in labels)
            out.write(ids + "".join(f" {feature}:{value}" for feature, value in known) + "\n")


def lookalike(*words: object) -> str:
    return subprocess.run([BINARY, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout


def train_part(folder: pathlib.Path, parts: list[pathlib.Path], part: int, options: argparse.Namespace) -> dict:
    model, before = folder / f"model{part + 1}", folder / f"model{part}"
    common = ["--model", model, "--overwrite", "--threads", options.threads, "--seed", options.seed, "--quiet"]
    if part == 0:
        lookalike("train", parts[0], *common)
        return figures(folder, model, measures=False)
    words = ["--from", before, *options.flags.split()]
    if "neighbours" not in described(before):
        for earlier in parts[:part]:
            words += ["--rehearse-from", earlier]
    lookalike("train", parts[part], *words, *common)
    return figures(folder, model, measures=part == len(parts) - 1)


def train_whole(folder: pathlib.Path, parts: list[pathlib.Path], options: argparse.Namespace) -> dict:
    model = folder / "model-whole"
    common = ["--overwrite", "--threads", options.threads, "--seed", options.seed, "--quiet"]
    lookalike("train", folder / "all.txt", "--model", model, *common)
    return figures(folder, model, measures=True)


def described(model: pathlib.Path) -> dict:
    return json.loads((model / "config.json").read_text())


def figures(folder: pathlib.Path, model: pathlib.Path, measures: bool) -> dict:
    found = {"seconds": described(model)["progress"]["train-seconds"]}
    if measures:
        for kind in ("old", "new"):
            answer = json.loads(lookalike("evaluate", model, folder / f"{kind}.txt", "--k", 1, "--json"))
            found[kind] = answer.get("P@1", answer.get("metrics", {}).get("P@1"))
    return found


def table(sizes: list[tuple[int, int]], stream: list[dict], whole: dict) -> str:
    lines = ["| | examples | new classes | time | of all at once | P@1 old | P@1 new |", "|---|---|---|---|---|---|---|"]
    for part, ((examples, new), found) in enumerate(zip(sizes, stream)):
        ratio = f"{found['seconds'] / whole['seconds']:.2f}"
        values = [f"{found[kind]:.1f}" if kind in found else "" for kind in ("old", "new")]
        lines.append(f"| part {part + 1} | {examples:,} | {new:,} | {found['seconds']:.1f} s | {ratio} | {' | '.join(values)} |")
    total = (sum(examples for examples, _ in sizes), sum(new for _, new in sizes))
    values = f"{whole['old']:.1f} | {whole['new']:.1f}"
    lines.append(f"| all at once | {total[0]:,} | {total[1]:,} | {whole['seconds']:.1f} s | 1 | {values} |")
    return "\n".join(lines)


def foot(data: pathlib.Path, stream: list[dict], whole: dict, options: argparse.Namespace) -> str:
    lost = whole["old"] - stream[-1]["old"]
    ratio = stream[-1]["seconds"] / whole["seconds"]
    flags = f'--flags "{options.flags}"' + (" --validate" if options.validate else "")
    flags += f" --examples {options.examples}" if options.examples else ""
    return (
        f"Old classes {'lose' if lost >= 0 else 'gain'} {abs(lost):.1f} points; the last part takes {ratio:.2f} of the time. "
        f"`scripts/stream.py {data.name} {flags} --seed {options.seed}`, {options.threads} threads."
    )


if __name__ == "__main__":
    main()
