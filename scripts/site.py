#!/usr/bin/env python3
"""Builds the documentation as a site: `python scripts/site.py`, then open target/site/html/index.html.

The pages are those of the repository, in the order of `mkdocs.yml`; links to other
files of the repository become links to where it is hosted. Needs the package `mkdocs`
(tests/site/requirements.txt). A link that leads nowhere, and a page without a place in
`mkdocs.yml`, fail.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "target/site/pages"
SOURCES = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md"]
IMAGES = "docs/images/*"
HOSTED = "https://github.com/OWNER/lookalike/blob/main/"
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def rewritten(text: str, page: Path, pages: set[Path]) -> str:
    """A page whose links to files that are no pages lead to where they are hosted."""

    def link(match: re.Match[str]) -> str:
        path, _, anchor = match[2].partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = (page.parent / path).resolve()
        if target in pages:
            return match[0]
        if not target.exists():
            sys.exit(f"{page.relative_to(ROOT)}: {match[2]}: there is no such file")
        if target.is_dir() and target / "README.md" in pages:
            return f"{match[1]}{path.rstrip('/')}/README.md{match[3]}"
        hosted = HOSTED + target.relative_to(ROOT).as_posix()
        return f"{match[1]}{hosted}{'#' + anchor if anchor else ''}{match[3]}"

    parts = CODE.split(text)
    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(parts))


def main() -> int:
    sources = [path for pattern in SOURCES for path in sorted(ROOT.glob(pattern))]
    images = sorted(ROOT.glob(IMAGES))
    pages = {*sources, *images}
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in sources:
        copy = PAGES / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(rewritten(page.read_text(encoding="utf-8"), page, pages), encoding="utf-8")
    for image in images:
        copy = PAGES / image.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(image, copy)
    # Not --quiet: what is not said is not counted as a mistake either.
    built = subprocess.run([sys.executable, "-m", "mkdocs", "build"], cwd=ROOT, capture_output=True, text=True)
    print(built.stderr.strip() if built.returncode else f"{len(sources)} pages in target/site/html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
