"""Scripts that people run by hand, tried on small files."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "target/release/lookalike"


def run(*command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)


@pytest.fixture
def repository(tmp_path):
    """A folder as the Extreme Classification Repository packs it."""
    folder = tmp_path / "EURLex-4K"
    shape = "--classes 60 --features 300 --train 800 --test 100 --labels-per-example 3".split()
    made = run(BINARY, "data", "synth", *shape, "--out", folder)
    assert made.returncode == 0, made.stderr
    (folder / "train.txt").rename(folder / "eurlex_train.txt")
    (folder / "test.txt").rename(folder / "eurlex_test.txt")
    return folder


def test_standard_prints_ours_beside_published_figures(repository):
    found = run(sys.executable, ROOT / "scripts/standard.py", repository, "--binary", BINARY)
    assert found.returncode == 0, found.stderr
    rows = {line.split("|")[1].strip(): line.split("|")[2:6] for line in found.stdout.splitlines() if "|" in line}
    ours, _, parabel, bonsai = (cell.strip() for cell in rows["EURLex-4K"])
    values = [float(value) for value in ours.split(" / ")]
    assert len(values) == 3 and all(0 < value <= 100 for value in values)
    assert (parabel, bonsai) == ("82.2 / 68.8 / 57.6", "82.8 / 69.4 / 58.1")
    # What was not run is not guessed.
    assert rows["Amazon-670K"][0].strip() == "" and rows["Wiki10-31K"][2].strip() == ""


def test_standard_says_what_a_folder_lacks(tmp_path):
    found = run(sys.executable, ROOT / "scripts/standard.py", tmp_path, "--binary", BINARY)
    assert found.returncode != 0 and "train.txt" in found.stderr


def test_links_that_lead_nowhere_are_found(tmp_path):
    run("git", "init", tmp_path)
    (tmp_path / "a.md").write_text("# One\n[good](b.md#two-three) [bad](c.md) [worse](b.md#four) `[code](x.md)`\n")
    (tmp_path / "b.md").write_text("## Two, `three`\n[up](a.md) [here](#two-three) ![no](no.png)\n")
    run("git", "add", ".", cwd=tmp_path)
    found = run(sys.executable, ROOT / "scripts/check_links.py", cwd=tmp_path)
    assert found.returncode == 1
    assert found.stdout.splitlines() == [
        "a.md: c.md: there is no such file",
        "a.md: b.md#four: there is no such heading",
        "b.md: no.png: there is no such file",
    ]
    (tmp_path / "a.md").write_text("[b](b.md)\n")
    (tmp_path / "b.md").write_text("[a](a.md)\n")
    assert run(sys.executable, ROOT / "scripts/check_links.py", cwd=tmp_path).returncode == 0
