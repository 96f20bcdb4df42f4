"""Puts tables into the marked places of a page, docs/results.md unless another is named."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
BINARY = ROOT / "target" / "release" / "lookalike"


def put_into_page(name: str, text: str, path: pathlib.Path = PAGE) -> None:
    """Replaces what stands between `<!-- results: NAME -->` and `<!-- end -->`."""
    page = path.read_text()
    place = re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not place.search(page):
        sys.exit(f"{path} has no place for {name}: add <!-- results: {name} --> and <!-- end -->")
    path.write_text(place.sub(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", page))
