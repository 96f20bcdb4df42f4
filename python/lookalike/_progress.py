"""What is told of a run: its history, and a line that shows how far it is."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO


class InterruptedTraining(UserWarning):
    """Training was interrupted; the model trained so far was kept."""


class Progress:
    """Collects the history of a run, and shows a bar where somebody looks.

    >>> progress = Progress(verbose=False)
    >>> step = {"event": "step", "loss": 2.0, "examples": 8, "epoch": 1, "step": 1,
    ...         "position": 0, "train_seconds": 0.5, "planned_steps": 4, "lr": 0.001}
    >>> progress(step)
    >>> progress.close()
    [{'epoch': 1, 'step': 1, 'train_seconds': 0.5, 'loss': 2.0}]
    """

    REDRAW_SECONDS = 0.2
    BAR_WIDTH = 24

    def __init__(self, verbose: bool | None = None, stream: TextIO | None = None) -> None:
        self.history: list[dict[str, Any]] = []
        self._stream = stream if stream is not None else sys.stderr
        self._visible = _somebody_looks(self._stream) if verbose is None else bool(verbose)
        self._loss_sum = 0.0
        self._examples = 0
        self._last: dict[str, Any] | None = None
        self._latest = ""
        self._drawn_at = 0.0
        self._drawn_width = 0

    def __call__(self, report: dict[str, Any]) -> None:
        if report["event"] == "step":
            self._loss_sum += report["loss"] * report["examples"]
            self._examples += report["examples"]
            self._last = report
            if report["position"] == 0:
                self._record()
            self._draw(report)
        else:
            self._evaluated(report)

    def _record(self) -> None:
        if self._last is None:
            return
        entry = {name: self._last[name] for name in ("epoch", "step", "train_seconds")}
        self.history.append({**entry, "loss": self._loss_sum / max(self._examples, 1)})
        self._loss_sum, self._examples, self._last = 0.0, 0, None

    def _evaluated(self, report: dict[str, Any]) -> None:
        self._record()  # an evaluation within an epoch
        metrics = {name: value for name, value in report["metrics"].items() if value is not None}
        self.history[-1].update(metrics)
        shown = [f"{name} {value:.4f}" for name, value in metrics.items() if name.startswith("P@")]
        self._latest = "  ".join(shown[:1])
        if self._visible:
            entry = self.history[-1]
            line = f"epoch {entry['epoch']:<3} loss {entry['loss']:.4f}  {'  '.join(shown)}"
            self._write("\r" + line.ljust(self._drawn_width) + "\n")
            self._drawn_width = 0

    def _draw(self, report: dict[str, Any]) -> None:
        now = time.monotonic()
        done, planned = report["step"], max(report["planned_steps"], 1)
        if not self._visible or (now - self._drawn_at < self.REDRAW_SECONDS and done < planned):
            return
        self._drawn_at = now
        share = min(done / planned, 1.0)
        bar = ("█" * round(share * self.BAR_WIDTH)).ljust(self.BAR_WIDTH, "░")
        left = report["train_seconds"] / done * (planned - done)
        line = f"{bar} {share:4.0%}  loss {report['loss']:.4f}  {self._latest}  {max(left, 0):.0f} s left"
        self._write("\r" + line.ljust(self._drawn_width))
        self._drawn_width = len(line)

    def close(self) -> list[dict[str, Any]]:
        """Ends the line and gives the history."""
        self._record()
        if self._visible and self._drawn_width > 0:
            self._write("\n")
            self._drawn_width = 0
        return self.history

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError, UnicodeError):
            self._visible = False  # a closed or narrow stream must not end a training


def _somebody_looks(stream: TextIO) -> bool:
    """Whether it is a terminal, or a notebook, which draws a line again as well."""
    if "ipykernel" in sys.modules and type(stream).__module__.startswith("ipykernel"):
        return True
    return bool(getattr(stream, "isatty", lambda: False)())
