#!/usr/bin/env python3
"""Trains lookalike and its tree-based peers on the same files, side by side.

    scripts/peers.py DATA... [--seeds 1 2 3] [--only pecos omikuji lookalike] [--threads N] [--page]

DATA is a folder with train.txt and test.txt in the Extreme Classification
format. PECOS XR-Linear (libpecos) and omikuji (Parabel) are installed from PyPI
into environments of their own under target/peers; all three train with their
defaults. Prints a table for each data set, and writes target/peers/DATA.json.

What is counted, the same for all:

- quality: from the five best classes that each tool gives for every test
  example, by one function (scripts/peer_runs/score.py);
- training: from examples in memory to a model in memory, without reading,
  saving and evaluation;
- memory: the peak of the training process, the examples included;
- model: the size of its files (lookalike: without what --resume needs);
- an answer: median over 500 test examples, one after the other, on one thread.
  For lookalike it includes the way through a pipe and reading and writing text.

Runs that are finished are kept in target/peers/runs and not done again; --again
does them again. A new build of lookalike is another tool: its runs are done
again when the binary is newer. --page also puts the tables into docs/results.md.
Times are those of whatever else the machine does: let it do nothing else.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time
import venv

from page import BINARY, ROOT, put_into_page

PEERS = ROOT / "target" / "peers"
WORKERS = ROOT / "scripts" / "peer_runs"
TITLES = {"pecos": "PECOS XR-Linear", "omikuji": "omikuji (Parabel)", "lookalike": "lookalike"}

# PECOS asks for PyTorch and transformers, which its linear model does not use, and for an old NumPy.
PACKAGES = {
    "pecos": [["--no-deps", "libpecos"], ["numpy<2", "scipy<1.14", "scikit-learn"]],
    "omikuji": [["numpy", "scipy", "omikuji"]],
}
# The environment that reads examples and scores answers.
SCORING = "omikuji"
LATENCY_EXAMPLES = 500


def main() -> None:
    options = arguments()
    for name in {SCORING, *options.only} & PACKAGES.keys():
        install(name)
    if "lookalike" in options.only:
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    for data in options.data:
        data = data.resolve()
        cache = read_examples(data)
        figures = {}
        for tool in options.only:
            seeds = options.seeds if tool == "lookalike" else options.seeds[:1]
            figures[tool] = [run(tool, data, cache, seed, options) for seed in seeds]
        report = {"data": data.name, "threads": options.threads, "machine": processor(), "tools": figures}
        (PEERS / f"{data.name}.json").write_text(json.dumps(report, indent=1) + "\n")
        text = f"{table(figures)}\n\n{foot(report, options.seeds)}"
        print(f"\n## {data.name}\n\n{text}", flush=True)
        if options.page:
            put_into_page(f"peers-{data.name}", text)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path, nargs="+", help="folders with train.txt and test.txt")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of lookalike; the peers, which hardly vary, take the first")
    parser.add_argument("--only", nargs="+", choices=TITLES, default=list(TITLES), help="the tools to run")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--again", action="store_true", help="also do what was done before")
    parser.add_argument("--page", action="store_true", help="put the tables into docs/results.md")
    options = parser.parse_args()
    for data in options.data:
        for part in ("train.txt", "test.txt"):
            if not (data / part).is_file():
                parser.error(f"{data} has no {part}")
    return options


def install(name: str) -> None:
    """An environment is complete once its mark is there."""
    mark = PEERS / name / "complete"
    if mark.exists():
        return
    print(f"installing {name} into {PEERS / name}", flush=True)
    venv.create(PEERS / name, with_pip=True, clear=True)
    for packages in PACKAGES[name]:
        command = [python(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        subprocess.run(command, check=True)
    mark.touch()


def python(name: str) -> str:
    return str(PEERS / name / "bin" / "python")


def read_examples(data: pathlib.Path) -> pathlib.Path:
    """The folder of the data set's matrices, made anew where a file is newer."""
    cache = PEERS / "data" / data.name
    cache.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        source, made = data / f"{part}.txt", cache / f"{part}-labels.npz"
        if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
            subprocess.run([python(SCORING), WORKERS / "examples.py", source, cache / part], check=True)
    return cache


def run(tool: str, data: pathlib.Path, cache: pathlib.Path, seed: int, options: argparse.Namespace) -> dict:
    """The figures of one tool with one seed."""
    folder = PEERS / "runs" / f"{data.name}-{tool}-{seed}-threads{options.threads}"
    kept = folder / "figures.json"
    is_old = tool == "lookalike" and kept.exists() and kept.stat().st_mtime < BINARY.stat().st_mtime
    if kept.exists() and not is_old and not options.again:
        return json.loads(kept.read_text())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"{data.name}: {TITLES[tool]}, seed {seed}", flush=True)
    if tool == "lookalike":
        figures = run_lookalike(data, folder, seed, options.threads)
    else:
        figures = run_peer(tool, data, cache, folder, seed, options.threads)
    files = [path for path in (folder / "model").rglob("*") if path.is_file()]
    figures["model_mb"] = sum(path.stat().st_size for path in files) / 1e6
    scored = [python(SCORING), WORKERS / "score.py", cache / "train", cache / "test", folder / "top.txt"]
    figures |= json.loads(subprocess.run(scored, check=True, capture_output=True, text=True).stdout)
    kept.write_text(json.dumps(figures, indent=1) + "\n")
    # Models are large, and so is what omikuji says of its progress.
    shutil.rmtree(folder / "model")
    (folder / "log.txt").unlink()
    return figures


def run_peer(tool: str, data: pathlib.Path, cache: pathlib.Path, folder: pathlib.Path, seed: int, threads: int) -> dict:
    source = cache / "train" if tool == "pecos" else only_with_features(data / "train.txt", cache)
    work = [python(tool), WORKERS / f"{tool}_run.py"]
    with open(folder / "log.txt", "w") as log:
        for step in (["train", folder, source, seed, threads], ["answer", folder, cache / "test", threads]):
            done = subprocess.run([*work, *map(str, step)], stdout=log, stderr=log)
            if done.returncode != 0:
                sys.exit(f"{TITLES[tool]} failed on {data.name}: see {folder / 'log.txt'}")
    return {**json.loads((folder / "train.json").read_text()), **json.loads((folder / "answer.json").read_text())}


def only_with_features(train: pathlib.Path, cache: pathlib.Path) -> pathlib.Path:
    """The training file for omikuji, which fails on rows without features."""
    with open(train) as lines:
        _, num_features, num_classes = next(lines).split()
        num_rows = num_kept = 0
        for line in lines:
            num_rows += 1
            num_kept += ":" in line
    if num_kept == num_rows:
        return train
    copy = cache / "train-with-features.txt"
    with open(train) as lines, open(copy, "w") as out:
        next(lines)
        out.write(f"{num_kept} {num_features} {num_classes}\n")
        out.writelines(line for line in lines if ":" in line)
    return copy


def run_lookalike(data: pathlib.Path, folder: pathlib.Path, seed: int, threads: int) -> dict:
    model, test = folder / "model", data / "test.txt"
    command = ["train", data / "train.txt", "--model", model, "--without-training-state"]
    with open(folder / "log.txt", "w") as log:
        worker = subprocess.Popen(
            [BINARY, *map(str, command), "--seed", str(seed), "--threads", str(threads)], stdout=log, stderr=log
        )
        # Of this child alone: the maximum over all children would be that of the largest.
        _, status, usage = os.wait4(worker.pid, 0)
        worker.returncode = os.waitstatus_to_exitcode(status)
    if worker.returncode != 0:
        sys.exit(f"lookalike failed on {data.name}: see {folder / 'log.txt'}")
    predict = [BINARY, "predict", model, test, "--threads", str(threads)]
    answers = subprocess.run(predict, check=True, capture_output=True, text=True).stdout
    with open(folder / "top.txt", "w") as out:
        # Classes and scores take turns.
        out.writelines(" ".join(line.split("\t")[::2]) + "\n" for line in answers.splitlines())
    version = subprocess.run([BINARY, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return {
        "version": version,
        "train_seconds": json.loads((model / "config.json").read_text())["progress"]["train-seconds"],
        "peak_memory_mb": usage.ru_maxrss * 1024 / 1e6,
        **lookalike_latencies(model, test),
    }


def lookalike_latencies(model: pathlib.Path, test: pathlib.Path) -> dict:
    """Examples sent one by one to a running `predict`, the next when the answer is there."""
    command = [BINARY, "predict", model, "-", "--threads", "1"]
    times_ms = []
    with open(test, "rb") as lines, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as worker:
        worker.stdin.write(next(lines))
        # The first answer also waits for the model to be read.
        for line, _ in zip(lines, range(LATENCY_EXAMPLES + 1)):
            start = time.perf_counter()
            worker.stdin.write(line)
            worker.stdin.flush()
            worker.stdout.readline()
            times_ms.append(1000 * (time.perf_counter() - start))
        worker.kill()
    times_ms = sorted(times_ms[1:])
    return {"latency_ms_median": statistics.median(times_ms), "latency_ms_p99": times_ms[len(times_ms) * 99 // 100]}


def table(figures: dict[str, list[dict]]) -> str:
    """A row a tool; means over the seeds."""
    heads = ["", "P@1", "P@3", "P@5", "PSP@1 / 3 / 5", "tail recall@1 / 3 / 5", "training", "× PECOS", "memory", "model"]
    rows = [[*heads, "an answer"]]
    rows.append([":---"] + ["---:"] * (len(rows[0]) - 1))
    pecos = mean(figures.get("pecos", []), "train_seconds")
    for tool, runs in figures.items():
        seconds = mean(runs, "train_seconds")
        rows.append(
            [
                TITLES[tool],
                *(with_deviation(runs, f"P@{k}") for k in (1, 3, 5)),
                *(three(runs, name) for name in ("PSP", "tail-recall")),
                f"{seconds:.1f} s",
                f"{seconds / pecos:.2f}" if pecos else "–",
                f"{mean(runs, 'peak_memory_mb'):,.0f} MB",
                f"{mean(runs, 'model_mb'):,.0f} MB",
                f"{mean(runs, 'latency_ms_median'):.2f} ms",
            ]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def foot(report: dict, seeds: list[int]) -> str:
    versions = ", ".join(runs[0]["version"] for runs in report["tools"].values())
    one = f"seed {seeds[0]}"
    many = f"lookalike: mean ± standard deviation of {len(seeds)} seeds, the others: {one}"
    seeds_text = one if len(seeds) == 1 else many
    return f"{versions}; {seeds_text}; {report['threads']} threads, {report['machine']}."


def mean(runs: list[dict], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return statistics.mean(values) if values else None


def with_deviation(runs: list[dict], name: str) -> str:
    spread = f" ± {statistics.stdev(run[name] for run in runs):.2f}" if len(runs) > 1 else ""
    return f"{mean(runs, name):.2f}{spread}"


def three(runs: list[dict], name: str) -> str:
    values = [mean(runs, f"{name}@{k}") for k in (1, 3, 5)]
    return "–" if None in values else " / ".join(f"{value:.1f}" for value in values)


def processor() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


if __name__ == "__main__":
    main()
