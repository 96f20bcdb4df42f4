"""The frame of a peer's run, and what it leaves behind for scripts/peers.py.

    python TOOL_run.py train FOLDER TRAIN SEED THREADS     makes FOLDER/model and FOLDER/train.json
    python TOOL_run.py answer FOLDER TEST THREADS          makes FOLDER/top.txt and FOLDER/answer.json

Two processes, because the memory of training is that of the process.
"""

import importlib.metadata
import json
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence

# Examples that are answered one by one, on one thread, to measure how long an answer takes.
LATENCY_EXAMPLES = 500


def main(package: str, train: Callable, answer: Callable) -> None:
    """`train(data, model, seed, threads)` gives seconds. `answer(data, model, threads)` gives
    the best classes of each example, a function that answers one query, and queries."""
    verb, folder, data, *numbers = sys.argv[1:]
    folder = pathlib.Path(folder)
    model = str(folder / "model")
    if verb == "train":
        seconds, memory = train(data, model, *map(int, numbers))
        version = f"{package} {importlib.metadata.version(package)}"
        write(folder / "train.json", {"version": version, "train_seconds": seconds, "peak_memory_mb": memory})
    else:
        top, answer_one, queries = answer(data, model, *map(int, numbers))
        write_top(folder / "top.txt", top)
        write(folder / "answer.json", latencies(answer_one, queries))


def peak_memory_mb() -> float:
    """Of this process until now."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def latencies(answer_one: Callable, queries: Iterable) -> dict[str, float]:
    """The time of answers given one after the other."""
    times_ms = []
    for query in queries:
        start = time.perf_counter()
        answer_one(query)
        times_ms.append(1000 * (time.perf_counter() - start))
    return {"latency_ms_median": statistics.median(times_ms), "latency_ms_p99": sorted(times_ms)[len(times_ms) * 99 // 100]}


def write(path: pathlib.Path, figures: dict) -> None:
    path.write_text(json.dumps(figures, indent=1) + "\n")


def write_top(path: pathlib.Path, top: Iterable[Sequence[int]]) -> None:
    """A line an example: its best classes, best first."""
    with open(path, "w") as out:
        out.writelines(" ".join(map(str, classes)) + "\n" for classes in top)
