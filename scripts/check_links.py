#!/usr/bin/env python3
"""Follows every link from page to page, and to a heading within one.

`scripts/check_links.py` looks at all Markdown files that git knows, and at files and
headings of this repository only: nothing is asked of the network. Prints what leads
nowhere, and fails if anything does.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+\s+(.*?)\s*$", re.MULTILINE)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The names that headings get, as GitHub and mdBook make them."""
    names: dict[str, int] = {}
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names[name] = names.get(name, -1) + 1
        if names[name]:
            names[f"{name}-{names[name]}"] = 0
    return set(names)


def bad_links(page: Path) -> list[str]:
    found = []
    for match in LINK.finditer(without_code(page.read_text(encoding="utf-8"))):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page.resolve()
        if not target.exists():
            found.append(f"{page}: {link}: there is no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8")):
            found.append(f"{page}: {link}: there is no such heading")
    return found


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "*.md"], check=True, capture_output=True, text=True)
    pages = [Path(line) for line in listed.stdout.splitlines() if Path(line).exists()]
    bad = [line for page in pages for line in bad_links(page)]
    print("\n".join(bad) or f"every link of {len(pages)} pages leads somewhere")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
