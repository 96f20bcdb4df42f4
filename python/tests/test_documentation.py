"""What the documentation shows is run: docstrings, docs/python.md, notebooks, types."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import lookalike

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
HAS_TORCH = importlib.util.find_spec("torch") is not None

modules = [
    module.name
    for module in pkgutil.iter_modules(lookalike.__path__)
    if module.name != "_native" and (HAS_TORCH or module.name not in ("torch", "_group"))
]


@pytest.mark.parametrize("name", ["", *modules])
def test_docstrings(name):
    module = importlib.import_module(f"lookalike.{name}" if name else "lookalike")
    assert doctest.testmod(module).failed == 0


def public_objects():
    for name in modules:
        if not name.startswith("_"):
            module = importlib.import_module(f"lookalike.{name}")
            for attribute, value in vars(module).items():
                if getattr(value, "__module__", None) == module.__name__ and not attribute.startswith("_"):
                    yield f"{name}.{attribute}", value
                    if isinstance(value, type):
                        for method, function in vars(value).items():
                            if callable(function) and not method.startswith("_"):
                                yield f"{name}.{attribute}.{method}", function


def test_everything_public_has_a_docstring():
    missing = [name for name, value in public_objects() if not getattr(value, "__doc__", None)]
    assert not missing


@pytest.mark.parametrize("page", ["docs/python.md", "python/README.md"])
def test_code_of_pages(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        if "torch" in block and not HAS_TORCH:
            continue
        exec(compile(block, page, "exec"), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks(path):
    notebook = nbformat.read(path, as_version=4)
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    if "torch" in code and not HAS_TORCH:
        pytest.skip("PyTorch is not installed; its CPU build is enough")
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts(path):
    if "torch" in path.read_text(encoding="utf-8") and not HAS_TORCH:
        pytest.skip("PyTorch is not installed; its CPU build is enough")
    command = [sys.executable, str(path), "--seconds", "0.2"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 8, result.stdout


def type_check(*paths: str) -> None:
    config = ROOT / "python" / "pyproject.toml"
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", str(config), *paths]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_types_of_the_package():
    if not HAS_TORCH:
        pytest.skip("the types of PyTorch are needed")
    type_check("-p", "lookalike")


def test_type_checkers_see_unknown_attributes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from lookalike import ExtremeClassifier\nExtremeClassifier().fitt\n", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "python" / "pyproject.toml")]
    result = subprocess.run([*command, str(script)], capture_output=True, text=True, check=False)
    assert '"ExtremeClassifier" has no attribute "fitt"' in result.stdout


def test_types_of_the_examples(tmp_path):
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
        if HAS_TORCH or "torch" not in "".join(code):
            script = tmp_path / f"{path.stem.replace('-', '_')}.py"
            script.write_text("\n".join(code), encoding="utf-8")
    scripts = [str(script) for script in tmp_path.glob("*.py")]
    scripts += [str(path) for path in SCRIPTS if HAS_TORCH or "torch" not in path.read_text(encoding="utf-8")]
    assert scripts
    type_check(*scripts)


def test_stubs_name_what_there_is():
    stub = (Path(lookalike.__file__).parent / "_native.pyi").read_text(encoding="utf-8")
    native = importlib.import_module("lookalike._native")
    for name, value in vars(native).items():
        if not name.startswith("_"):
            assert re.search(rf"^(class|def) {name}\b", stub, re.MULTILINE), name
            if isinstance(value, type):
                body = stub.split(f"class {name}:")[1].split("\n@final")[0]
                for method in vars(value):
                    assert method.startswith("_") or f"def {method}(" in body, f"{name}.{method}"
