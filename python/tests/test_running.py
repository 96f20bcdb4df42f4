"""Threads, forks, Ctrl-C, memory and the time an import takes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from conftest import ROOT

from lookalike import ExtremeClassifier, InterruptedTraining
from lookalike._progress import Progress

QUICK = {
    "preset": "plain",
    "sampler": "lsh-embedding",
    "hidden": 32,
    "epochs": 2,
    "batch": 64,
    "lr": 0.01,
    "budget": 40,
}


def in_new_process(code: str) -> str:
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_threads_change_nothing_but_the_time(generated):
    train, test = generated
    models = [ExtremeClassifier(**QUICK, threads=threads).fit(train.X, train.Y) for threads in (1, 3, None)]
    first = models[0].to_numpy()
    for model in models[1:]:
        for name, value in model.to_numpy().items():
            np.testing.assert_array_equal(value, first[name])
        np.testing.assert_array_equal(model.predict(test.X, k=5), models[0].predict(test.X, k=5))


def test_a_forked_child_has_threads_of_its_own(generated):
    train, test = generated
    model = ExtremeClassifier(**QUICK).fit(train.X, train.Y)
    expected = model.predict(test.X)
    child = os.fork()
    if child == 0:
        # Whatever happens, the child must not go on with the tests.
        try:
            signal.alarm(60)  # threads that are not there are waited for for ever
            same = np.array_equal(model.predict(test.X), expected)
            learnt = ExtremeClassifier(**QUICK).fit(train.X, train.Y).score(test.X, test.Y) > 0.1
            os._exit(0 if same and learnt else 1)
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    np.testing.assert_array_equal(model.predict(test.X), expected)


def test_other_threads_run_while_a_model_trains(generated):
    train, _ = generated
    counts = []
    stop = threading.Event()

    def count() -> None:
        number = 0
        while not stop.is_set():
            number += 1
        counts.append(number)

    other = threading.Thread(target=count)
    other.start()
    ExtremeClassifier(**{**QUICK, "epochs": 10}, threads=1).fit(train.X, train.Y)
    stop.set()
    other.join()
    assert counts[0] > 1000


@pytest.fixture
def hears_control_c():
    """Whoever a shell has started in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_control_c")
def test_control_c_keeps_the_model(generated):
    train, test = generated
    model = ExtremeClassifier(**{**QUICK, "epochs": 1_000_000})
    threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.warns(InterruptedTraining, match="was kept"):
        model.fit(train.X, train.Y)
    assert model.history_[-1]["step"] > 0
    assert model.predict(test.X).shape == (300,)


def test_an_exception_in_the_progress_is_raised(generated, monkeypatch):
    train, _ = generated

    def complain(self, report):
        raise ZeroDivisionError

    monkeypatch.setattr(Progress, "__call__", complain)
    with pytest.raises(ZeroDivisionError):
        ExtremeClassifier(**{**QUICK, "epochs": 1_000_000}).fit(train.X, train.Y)


def test_the_bar_is_drawn_for_terminals_only(generated, capsys):
    train, test = generated
    ExtremeClassifier(**QUICK).fit(train.X, train.Y)
    assert capsys.readouterr() == ("", "")
    ExtremeClassifier(**QUICK, verbose=True).fit(train.X, train.Y, eval_set=(test.X, test.Y))
    shown = capsys.readouterr().err
    assert "epoch 2" in shown
    assert "P@1" in shown
    assert "100%" in shown
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    progress = Progress(verbose=True, stream=narrow)
    step = {"event": "step", "loss": 1.0, "examples": 1, "epoch": 1, "step": 1, "position": 0}
    progress({**step, "train_seconds": 1.0, "planned_steps": 1, "lr": 1.0})
    assert progress.close()[0]["loss"] == 1.0, "a stream that can't show the bar does not end the training"


def test_importing_takes_nothing_along():
    code = """
import sys
import lookalike
print(sorted({"numpy", "scipy", "sklearn", "torch", "onnx"} & set(sys.modules)))
lookalike.ExtremeClassifier
print(sorted({"torch", "onnx"} & set(sys.modules)))
"""
    assert in_new_process(code) == "[]\n[]\n"


def test_a_large_matrix_is_not_copied():
    script = ROOT / "scripts" / "measure_fit_memory.py"
    command = [sys.executable, str(script), "200000"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    size, share = result.stdout.split()
    assert int(size) > 160_000_000
    assert float(share) < 0.10


def test_warnings_are_none_of_the_ordinary(generated):
    train, test = generated
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExtremeClassifier(**QUICK).fit(train.X, train.Y).predict(test.X)
