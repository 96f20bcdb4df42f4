#!/usr/bin/env python3
"""Does to a model, its data and its directory what disks, crashes and other people do.

    scripts/probes.py [--binary target/release/lookalike] [--share 1.0] [--seed 1]

A small model is trained in a temporary folder. Then, with the counts of docs/reliability.md
times --share: flipped bits and cuts of each of its files and of packed data, each either
refused or without any effect; loads while another process saves; two trainings into one
directory; pipes and devices in the place of files; line ends without end under a limit of
memory; signals. Prints a table, and exits with 1 if anything was silent, a crash or a hang.
"""

import argparse
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAIN = "train made/train.txt --epochs 1 --hidden 8 --budget 12 --threads 2 -q --overwrite --model"
HANG_SECONDS = 20


class Probes:
    def __init__(self, options: argparse.Namespace, folder: pathlib.Path) -> None:
        self.binary = str(pathlib.Path(options.binary).resolve())
        self.folder = folder
        self.share = options.share
        self.chance = random.Random(options.seed)
        self.rows: list[tuple[str, int, str, bool]] = []

    def times(self, count: int) -> int:
        return max(1, round(count * self.share))

    def run(self, line: str, memory: int | None = None) -> subprocess.CompletedProcess | None:
        """None if it hangs."""
        limit = (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory))) if memory else None
        words = [self.binary, *line.split()]
        try:
            return subprocess.run(
                words, cwd=self.folder, capture_output=True, timeout=HANG_SECONDS, preexec_fn=limit, stdin=subprocess.DEVNULL
            )
        except subprocess.TimeoutExpired:
            return None

    def kind(self, line: str, expected: bytes | None, memory: int | None = None) -> str:
        done = self.run(line, memory)
        if done is None:
            return "hangs"
        if done.returncode in (1, 2):
            return "refused"
        if done.returncode == 0:
            return "equal" if expected is None or done.stdout == expected else "SILENT"
        return f"CRASH {done.returncode}"

    def tell(self, what: str, kinds: list[str], good: set[str]) -> None:
        counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
        text = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        self.rows.append((what, len(kinds), text, set(kinds) <= good))
        print(f"{'  ' if self.rows[-1][3] else '! '}{what}: {len(kinds)}: {text}", flush=True)

    def all(self) -> bool:
        self.run("data synth --classes 40 --features 150 --train 400 --test 60 --out made")
        assert self.run(f"{TRAIN} model").returncode == 0
        self.run("data pack made/test.txt --out test.lkp")
        self.damage()
        self.loads_under_saves()
        self.two_trainings()
        self.no_files()
        self.bombs()
        self.signals()
        self.settings()
        return all(good for *_, good in self.rows)

    def damage(self) -> None:
        ask = "predict model made/test.txt --top-k 5"
        answer = self.run(ask).stdout
        assert answer
        files = [(self.folder / "model" / name, ask, answer) for name in os.listdir(self.folder / "model")]
        measured = self.run("evaluate model test.lkp --json").stdout
        assert measured
        files.append((self.folder / "test.lkp", "evaluate model test.lkp --json", measured))
        for path, line, expected in sorted(files):
            good = path.read_bytes()
            flips, cuts = [], []
            for _ in range(self.times(1200 if path.name == "config.json" else 300)):
                bad = bytearray(good)
                bad[self.chance.randrange(len(bad))] ^= 1 << self.chance.randrange(8)
                path.write_bytes(bad)
                flips.append(self.kind(line, expected))
            for _ in range(self.times(50)):
                path.write_bytes(good[: self.chance.randrange(len(good))])
                cuts.append(self.kind(line, expected))
            path.write_bytes(good)
            # What only training reads is not opened for an answer.
            self.tell(f"{path.name}: a bit flipped", flips, {"refused", "equal"})
            self.tell(f"{path.name}: cut", cuts, {"refused", "equal"})

    def loads_under_saves(self) -> None:
        ask = "predict shared made/test.txt --top-k 5"
        answers = []
        for seed in (1, 2):
            self.run(f"{TRAIN} shared --seed {seed}")
            answers.append(self.run(ask).stdout)
        assert answers[0] != answers[1]
        is_done = threading.Event()
        saves = [0]

        def save() -> None:
            while not is_done.is_set():
                saves[0] += 1
                assert self.run(f"{TRAIN} shared --seed {1 + saves[0] % 2}").returncode == 0

        saver = threading.Thread(target=save)
        saver.start()
        kinds = []
        for _ in range(self.times(150)):
            done = self.run(ask)
            is_one = done is not None and done.returncode == 0 and done.stdout in answers
            kinds.append("one of the two" if is_one else "WRONG")
        is_done.set()
        saver.join()
        self.tell(f"loads while another process saves ({saves[0]} saves)", kinds, {"one of the two"})

    def two_trainings(self) -> None:
        kinds = []
        for _ in range(self.times(10)):
            line = f"{TRAIN} locked".replace("--epochs 1", "--epochs 100000").split()
            first = subprocess.Popen([self.binary, *line], cwd=self.folder, stderr=subprocess.DEVNULL)
            # The lock is taken before data is read.
            while not any(self.folder.glob("*locked*")) and first.poll() is None:
                pass
            signal.sigtimedwait([], 0.2)
            kinds.append(self.kind(f"{TRAIN} locked", None))
            first.kill()
            first.wait()
            kinds.append("taken over" if self.kind(f"{TRAIN} locked", None) == "equal" else "STILL LOCKED")
            for left in self.folder.glob("*locked*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        self.tell("a second training beside one, and after it was killed", kinds, {"refused", "taken over"})

    def no_files(self) -> None:
        kinds = []
        for name in os.listdir(self.folder / "model"):
            for make in (os.mkfifo, lambda path: os.symlink("/dev/zero", path), os.mkdir):
                shutil.copytree(self.folder / "model", self.folder / "odd")
                (self.folder / "odd" / name).unlink()
                make(self.folder / "odd" / name)
                kinds.append(self.kind("predict odd made/test.txt --top-k 5", None))
                kinds.append(self.kind("train made/train.txt --resume --model odd --epochs 2 -q", None))
                shutil.rmtree(self.folder / "odd")
        self.tell("a pipe, /dev/zero or a folder in the place of a model's file", kinds, {"refused", "equal"})
        os.symlink("/dev/zero", self.folder / "zero")
        lines = ["data stats zero", "data pack zero --out z", "evaluate model zero", "train zero --model z -q", "predict model zero"]
        self.tell("/dev/zero in the place of data", [self.kind(line, None) for line in lines], {"refused"})

    def bombs(self) -> None:
        import zlib

        rows = "".join(f"{i % 5} {i % 7}:1\n" for i in range(40))
        for name, head in (("a header of 40 rows", "40 10 5\n"), ("no header", "")):
            deflate = zlib.compressobj(9, wbits=31)
            packed = deflate.compress((head + rows).encode())
            for _ in range(self.times(320)):
                packed += deflate.compress(b"\n" * (16 << 20))
            (self.folder / "bomb").write_bytes(packed + deflate.flush())
            lines = ["data stats bomb", "data pack bomb --out bomb.lkp", "train bomb --model b --overwrite --epochs 1 --hidden 4 --budget 3 -q"]
            kinds = [self.kind(line, None, 4_000_000 << 10) for line in lines]
            self.tell(f"gigabytes of line ends in little, {name}, under 4 GB", kinds, {"refused", "equal"})

    def signals(self) -> None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            line = f"{TRAIN} stopped".replace("--epochs 1", "--epochs 100000").replace("-q", "")
            child = subprocess.Popen([self.binary, *line.split()], cwd=self.folder, stderr=subprocess.PIPE)
            os.set_blocking(child.stderr.fileno(), True)
            while b"negatives" not in child.stderr.readline() and child.poll() is None:
                pass
            signal.sigtimedwait([], 0.3)
            child.send_signal(getattr(signal, name))
            child.communicate(timeout=HANG_SECONDS)
            kept = self.kind("evaluate stopped made/test.txt", None) == "equal"
            self.tell(name, ["model saved" if kept else f"LOST, exit {child.returncode}"], {"model saved"})
            shutil.rmtree(self.folder / "stopped", ignore_errors=True)

    def settings(self) -> None:
        bad = ["--lr nan", "--refresh-growth nan", "--clip nan", "--sparsity nan", "--sparse-lr nan", "--lr inf", "--lr 0"]
        bad += ["--batch 0", "--epochs 0", "--hidden 0", "--budget 0", "--time-limit nan"]
        self.tell("settings that are no numbers, or none", [self.kind(f"{TRAIN} nothing {flag}", None) for flag in bad], {"refused"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=ROOT / "target" / "release" / "lookalike")
    parser.add_argument("--share", type=float, default=1.0, help="of the counts")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if Probes(options, pathlib.Path(folder)).all() else 1)


if __name__ == "__main__":
    main()
