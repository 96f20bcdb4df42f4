"""The service does what its OpenAPI document says. See README.md."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
MODELS = ROOT / "crates/lookalike/tests/fixtures/models"
TOKEN = "t0ken"


@pytest.fixture(params=["v4-text", "v4-plain"])
def url(request, program):
    arguments = ["serve", MODELS / request.param / "model", "--listen", "127.0.0.1:0", "--token", TOKEN]
    # A busy machine is slow, and slowness is not tested here.
    arguments += ["--max-wait", "60000", "--timeout", "600"]
    service = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield service.stdout.readline().strip()
    finally:
        service.terminate()
        assert service.wait(timeout=60) == 0


def test_answers_are_as_described(url, tmp_path):
    schemathesis = pathlib.Path(sys.executable).with_name("schemathesis")
    options = ["--max-examples", "50", "--seed", "1", "--phases", "examples,fuzzing", "--generation-database", "none"]
    # What is good JSON may still be wrong for the model: no schema knows its classes and features.
    options += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
    result = subprocess.run(
        [schemathesis, "run", f"{url}openapi.json", "-H", f"Authorization: Bearer {TOKEN}", "--no-color", *options],
        capture_output=True,
        text=True,
        # It leaves files where it runs.
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
