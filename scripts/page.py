"""Puts tables into the marked places of docs/results.md and docs/experiments.md."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / "results.md", ROOT / "docs" / "experiments.md"]
BINARY = ROOT / "target" / "release" / "lookalike"


def put_into_page(name: str, text: str, path: pathlib.Path | None = None) -> None:
    """Replaces what stands between `<!-- results: NAME -->` and `<!-- end -->`."""
    place = re.compile(rf"(<!-- results: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    for page in [path] if path else PAGES:
        content = page.read_text()
        if place.search(content):
            page.write_text(place.sub(lambda found: f"{found[1]}\n{text.strip()}\n\n{found[2]}", content))
            return
    sys.exit(f"no page has a place for {name}: add <!-- results: {name} --> and <!-- end -->")
