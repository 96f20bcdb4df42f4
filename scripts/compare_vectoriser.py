#!/usr/bin/env python3
"""Compares the vectoriser with scikit-learn's TfidfVectorizer, text by text.

    python3 -m venv .venv && .venv/bin/pip install scikit-learn
    .venv/bin/python scripts/compare_vectoriser.py TEXTS [--number 10000]

TEXTS has a text a line (the part before the first tab, if there is one). Equal
means: the same vocabulary in the same order, the same features in every row, and
values that differ by at most 1e-5. Exits with 1 if anything differs.

scikit-learn gets the same normal form (NFKC, lower case) as its preprocessor. Its
word pattern leaves combining marks out of words, ours does not (see tokens.rs);
so words are compared twice: with its own pattern on the texts without such marks,
and on all texts with a pattern that has them.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unicodedata

from sklearn.feature_extraction.text import TfidfVectorizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOLERANCE = 1e-5


def normal(text):
    return unicodedata.normalize("NFKC", text).lower()


def is_mark(character):
    return unicodedata.category(character).startswith("M")


def ours(texts, options):
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "texts.txt"
        path.write_text("".join(f"{text}\n" for text in texts), "utf-8")
        command = [ROOT / "target/release/examples/vectorise", path, json.dumps(options)]
        output = subprocess.run(command, check=True, capture_output=True).stdout
    header, *rows = (json.loads(line) for line in output.decode().splitlines())
    return header["features"], [dict(zip(row["ids"], row["values"])) for row in rows]


def theirs(texts, options):
    vectoriser = TfidfVectorizer(preprocessor=normal, **options)
    matrix = vectoriser.fit_transform(texts).tocsr()
    matrix.sort_indices()
    rows = []
    for i in range(matrix.shape[0]):
        part = slice(matrix.indptr[i], matrix.indptr[i + 1])
        rows.append(dict(zip(matrix.indices[part].tolist(), matrix.data[part].tolist())))
    return vectoriser.get_feature_names_out().tolist(), rows


def compare(title, texts, our_options, their_options):
    our_names, our_rows = ours(texts, {"max_features": None, **our_options})
    their_names, their_rows = theirs(texts, their_options)
    problems = []
    if our_names != their_names:
        difference = sorted(set(our_names) ^ set(their_names))[:5]
        problems.append(f"vocabularies differ: {len(our_names)} and {len(their_names)}, e.g. {difference}")
    if len(our_rows) != len(their_rows):
        problems.append(f"{len(our_rows)} rows and {len(their_rows)}")
    worst = 0.0
    for text, a, b in zip(texts, our_rows, their_rows):
        if a.keys() != b.keys():
            problems.append(f"other features for {text!r}")
            break
        worst = max([worst, *(abs(a[i] - b[i]) for i in a)])
    if worst > TOLERANCE:
        problems.append(f"values differ by {worst:.1e}")
    verdict = "; ".join(problems) or f"equal, values within {worst:.1e}"
    print(f"{title}: {len(texts)} texts, {len(their_names)} features: {verdict}")
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("--number", type=int, default=10_000)
    arguments = parser.parse_args()
    with open(arguments.texts, encoding="utf-8", newline="\n") as file:
        texts = [line.rstrip("\r\n").split("\t")[0] for line, _ in zip(file, range(arguments.number))]
    # The whole workspace, so that what the Rust tests have built is used again.
    build = ["cargo", "build", "--quiet", "--release", "--workspace", "--example", "vectorise"]
    subprocess.run(build, cwd=ROOT, check=True)
    unmarked = [text for text in texts if not any(map(is_mark, normal(text)))]
    marks = "".join(sorted({c for text in texts for c in normal(text) if is_mark(c)}))
    with_marks = rf"(?u)[\w{marks}]{{2,}}"

    def words(low, high):
        return {"characters": None, "words": {"min": low, "max": high}}

    def characters(low, high):
        return {"words": None, "characters": {"min": low, "max": high}}

    def sizes(low, high, analyzer):
        return {"analyzer": analyzer, "ngram_range": (low, high)}

    results = [
        compare("char_wb 2-4, sublinear, min_df 2", texts,
                characters(2, 4) | {"min_documents": 2},
                sizes(2, 4, "char_wb") | {"min_df": 2, "sublinear_tf": True}),
        compare("char_wb 1-6, plain tf, min_df 1", texts,
                characters(1, 6) | {"min_documents": 1, "sublinear": False},
                sizes(1, 6, "char_wb")),
        compare("char_wb 5-5, short words whole", texts,
                characters(5, 5) | {"min_documents": 1},
                sizes(5, 5, "char_wb") | {"sublinear_tf": True}),
        compare("words 1-2, scikit-learn's pattern", unmarked,
                words(1, 2) | {"min_documents": 1},
                sizes(1, 2, "word") | {"sublinear_tf": True}),
        compare("words 1-2, marks within words", texts,
                words(1, 2) | {"min_documents": 1},
                sizes(1, 2, "word") | {"sublinear_tf": True, "token_pattern": with_marks}),
        compare("words 1-3 of one letter or more, min_df 3, plain tf", unmarked,
                words(1, 3) | {"min_documents": 3, "word_length_min": 1, "sublinear": False},
                sizes(1, 3, "word") | {"min_df": 3, "token_pattern": r"(?u)\b\w+\b"}),
    ]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
