#!/usr/bin/env python3
"""Mutation testing: are the library's tests able to fail?

Small changes are put into the library, one at a time (a function that returns a
constant, a `<` for a `<=`, a `-` for a `+`), and the library's own tests run on each.
A change that no test notices is printed: a test is missing, or the line is not needed.

    cargo install cargo-mutants
    pip install tree-sitter tree-sitter-rust
    scripts/mutants.py                  # 30 mutants of each folder, the same ones every time
    scripts/mutants.py --sample 0       # all of them: a day
    scripts/mutants.py --folders loss optim --seed 2

cargo-mutants knows what can be changed, and builds everything anew for each change.
Here its mutants are all compiled into one copy of the library, each behind a switch
that an environment variable turns (mutant schemata: Untch, Offutt and Harrold 1993), so
that a mutant costs no build, and of the tests only those that come to its switch (a run
without a mutant writes down which), up to the first that fails: it ends the process, and
those go first that caught much for their time. What can't stand behind a switch (code of
constants, for one) counts as not compiling. The copy and its build are in target/mutants.
"""

import argparse
import collections
import dataclasses
import functools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess

import tree_sitter
import tree_sitter_rust

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = pathlib.Path("crates/lookalike/src")
FOLDERS = ["hashing", "sampling", "loss", "optim", "train", "metrics", "predict"]
# Tests of damaged files: long, and of no folder of these.
LEFT_OUT = ("fuzz-", "data_files-")
COPY = ROOT / "target" / "mutants" / "tree"
SWITCH = "LOOKALIKE_MUTANT"
REACHED = "LOOKALIKE_MUTANTS_REACHED"
# Without a mutant, the switches that are come to are written down. A panic is a test that
# fails, and ends the others.
SWITCH_CODE = """
mod mutant {
    use std::io::Write;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static CHOSEN: LazyLock<u32> = LazyLock::new(|| {
        std::panic::set_hook(Box::new(|_| std::process::exit(101)));
        std::env::var("%s").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    });
    static IS_REACHED: [AtomicBool; %d] = [const { AtomicBool::new(false) }; _];
    #[inline]
    pub(crate) fn is(number: u32) -> bool {
        if *CHOSEN == 0 && !IS_REACHED[number as usize].load(Ordering::Relaxed) {
            write_down(number);
        }
        *CHOSEN == number
    }
    #[cold]
    fn write_down(number: u32) {
        if !IS_REACHED[number as usize].swap(true, Ordering::Relaxed) && let Ok(path) = std::env::var("%s") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            file.and_then(|mut file| file.write_all(format!("{number}\\n").as_bytes())).unwrap();
        }
    }
}
"""
# A mutant that computes for so many times what the tests take is caught. Seconds are those
# of the processor, so that a busy machine catches nothing; one that only waits is given up
# after this many times as long by the clock.
PATIENCE, PATIENCE_SECONDS, PATIENCE_WAITING = 5, 20, 20


def main() -> None:
    arguments = parse_arguments()
    mutants = []
    for folder in arguments.folders:
        mutants += choose(mutants_of(folder), arguments.sample, arguments.seed)
    for number, mutant in enumerate(mutants, start=1):
        mutant.number = number
    for round_of_mutants in rounds(mutants):
        try_all(round_of_mutants)
    print_table(mutants)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="folders or files of the library")
    parser.add_argument("--sample", type=int, default=30, help="mutants of each folder; 0 for all")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    return parser.parse_args()


@dataclasses.dataclass
class Mutant:
    """A piece of a file, from `start` up to `end`, and what it becomes."""

    folder: str
    file: str
    name: str
    start: int
    end: int
    instead: bytes
    # Lines of the function it is in.
    lines: tuple[int, int] = (0, 0)
    number: int = 0
    outcome: str = ""


def mutants_of(folder: str) -> list[Mutant]:
    files = SOURCE / folder if folder.endswith(".rs") else SOURCE / folder / "**" / "*.rs"
    command = ["cargo", "mutants", "--package", "lookalike", "--file", str(files)]
    # Their own tests are no subject of tests.
    command += ["--exclude", "**/tests.rs", "--list", "--json"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [mutant_of(folder, description) for description in json.loads(listed.stdout)]


def choose(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """As many as asked for that fit into one copy."""
    if count == 0:
        return mutants
    chosen = []
    for mutant in random.Random(seed).sample(mutants, len(mutants)):
        if len(chosen) < count and all(is_apart(mutant, other) for other in chosen):
            chosen.append(mutant)
    return chosen


def mutant_of(folder: str, description: dict) -> Mutant:
    source, tree = parsed(description["file"])
    span = description["span"]
    start, end = (place(source, span[side]) for side in ("start", "end"))
    replacement = description["replacement"].encode()
    first, last, instead = CHANGES[description["genre"]](source, tree, start, end, replacement)
    # A constant is in no function.
    around = (description["function"] or description)["span"]
    lines = around["start"]["line"], around["end"]["line"]
    return Mutant(folder, description["file"], description["name"], first, last, instead, lines)


@functools.cache
def parsed(file: str) -> tuple[bytes, tree_sitter.Tree]:
    source = (ROOT / file).read_bytes()
    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
    return source, parser.parse(source)


def place(source: bytes, position: dict) -> int:
    """cargo-mutants counts lines and characters from one."""
    lines = source.split(b"\n")
    before = sum(len(line) + 1 for line in lines[: position["line"] - 1])
    return before + len(lines[position["line"] - 1].decode()[: position["column"] - 1].encode())


def enclosing(tree: tree_sitter.Tree, start: int, end: int, *kinds: str) -> tree_sitter.Node:
    node = tree.root_node.descendant_for_byte_range(start, end)
    while node.type not in kinds:
        node = node.parent
    return node


def change_operator(source, tree, start, end, replacement):
    kinds = ("binary_expression", "compound_assignment_expr", "unary_expression")
    node = enclosing(tree, start, end, *kinds)
    instead = source[node.start_byte : start] + replacement + source[end : node.end_byte]
    return node.start_byte, node.end_byte, instead


def change_value(source, tree, start, end, replacement):
    return start, start, b"return " + replacement + b";"


def change_guard(source, tree, start, end, replacement):
    return start, end, replacement


def change_arm(source, tree, start, end, replacement):
    """An arm that never matches: its pattern gets a guard, or its guard another one."""
    pattern = enclosing(tree, start, end, "match_arm").child_by_field_name("pattern")
    guard = pattern.child_by_field_name("condition")
    if guard is None:
        return pattern.end_byte, pattern.end_byte, b""
    return guard.start_byte, guard.end_byte, b"false"


def change_field(source, tree, start, end, replacement):
    """A field of a struct that comes from the rest (`..rest`) after all."""
    field = enclosing(tree, start, start + 1, "field_initializer", "shorthand_field_initializer")
    literal = enclosing(tree, field.start_byte, field.end_byte, "struct_expression")
    rest = next(child for child in literal.child_by_field_name("body").children if child.type == "base_field_initializer")
    rest = rest.text.removeprefix(b"..").replace(b"Default::default()", literal.child_by_field_name("name").text + b"::default()")
    value = field.child_by_field_name("value")
    if value is None:
        return field.end_byte, field.end_byte, b": (" + rest + b")." + field.text
    return value.start_byte, value.end_byte, b"(" + rest + b")." + field.child_by_field_name("field").text


CHANGES = {
    "BinaryOperator": change_operator,
    "UnaryOperator": change_operator,
    "FnValue": change_value,
    "MatchArmGuard": change_guard,
    "MatchArm": change_arm,
    "StructField": change_field,
}


def rounds(mutants: list[Mutant]) -> list[list[Mutant]]:
    """Mutants whose pieces overlap go into different copies, unless they change the same piece."""
    found = []
    for mutant in mutants:
        for others in found:
            if all(is_apart(mutant, other) for other in others):
                others.append(mutant)
                break
        else:
            found.append([mutant])
    return found


def is_apart(a: Mutant, b: Mutant) -> bool:
    is_same = (a.start, a.end) == (b.start, b.end)
    return a.file != b.file or is_same or a.end <= b.start or b.end <= a.start


class Test:
    """Some of the tests: those of a file in tests/, or the library's own in one folder."""

    def __init__(self, *command: str) -> None:
        self.command = command
        log = COPY.parent / "reached"
        log.unlink(missing_ok=True)
        has_passed, self.seconds = run(command, None, {REACHED: str(log)})
        if not has_passed:
            raise SystemExit(f"{' '.join(command)} fails without any mutant")
        self.reached = {int(line) for line in log.read_text().split()} if log.exists() else set()
        self.tried = self.caught = 0

    def cost(self) -> float:
        """How long it takes to catch a mutant, about."""
        return self.seconds * (self.tried + 2) / (self.caught + 1)

    def outcome(self, number: int) -> str | None:
        limit = int(max(PATIENCE_SECONDS, PATIENCE * self.seconds))
        has_passed, _ = run(self.command, limit, {SWITCH: str(number)})
        self.tried += 1
        self.caught += not has_passed
        return {True: None, False: "caught", None: "without an end"}[has_passed]


def try_all(mutants: list[Mutant]) -> None:
    copy_tree()
    tests = tests_of(build(mutants))
    print(f"{len(tests)} runs, {sum(test.seconds for test in tests):.0f} s without a mutant", flush=True)
    for mutant in mutants:
        if mutant.outcome:
            continue
        those = sorted((test for test in tests if mutant.number in test.reached), key=Test.cost)
        outcomes = (test.outcome(mutant.number) for test in those)
        mutant.outcome = next(filter(None, outcomes), "missed" if those else "missed, no test comes to it")
        print(f"{mutant.outcome}: {mutant.name}", flush=True)


def tests_of(executables: list[str]) -> list[Test]:
    modules = sorted({path.stem for path in (ROOT / SOURCE).iterdir()} - {"lib"})
    tests = []
    for executable in executables:
        name = pathlib.Path(executable).name
        if name.startswith("lookalike-"):
            tests += [Test(executable, f"{module}::") for module in modules]
        elif not name.startswith(LEFT_OUT):
            tests.append(Test(executable))
    return tests


def copy_tree() -> None:
    """Files keep their times, so that what did not change is not built again."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)


def build(mutants: list[Mutant]) -> list[str]:
    """Writes the mutants into the copy and builds its tests; those that do not compile are left out."""
    written = write(mutants)
    while errors := cargo("check", "--lib")[0]:
        guilty = {mutant.number: mutant for error in errors for mutant in blamed(written, *error)}
        if not guilty:
            raise SystemExit(f"the copy does not compile, and no mutant is to blame: {errors}")
        for mutant in guilty.values():
            mutant.outcome = "does not compile"
        written = write(mutants)
    return cargo("test", "--no-run", "--lib", "--tests")[1]


def blamed(written: list[tuple[Mutant, int, int]], file: str, place: int, line: int) -> list[Mutant]:
    """The mutants in whose piece an error is; if it is in none, those that return from its function early."""
    in_file = [entry for entry in written if entry[0].file == file]
    inside = [mutant for mutant, start, end in in_file if start <= place <= end]
    return inside or [
        mutant
        for mutant, _, _ in in_file
        if mutant.start == mutant.end and mutant.lines[0] <= line <= mutant.lines[1]
    ]


def write(mutants: list[Mutant]) -> list[tuple[Mutant, int, int]]:
    """Each mutant with the place where it now is in its file; lines stay what they were."""
    pieces = collections.defaultdict(lambda: collections.defaultdict(list))
    for mutant in mutants:
        pieces[mutant.file][mutant.start, mutant.end]
        if not mutant.outcome:
            pieces[mutant.file][mutant.start, mutant.end].append(mutant)
    written = []
    for file, of_file in pieces.items():
        source, tree = parsed(file)
        text, done = b"", 0
        for (start, end), alternatives in sorted(of_file.items()):
            text += source[done:start]
            first = len(text)
            text += with_switches(source[start:end], alternatives)
            written += [(mutant, first, len(text)) for mutant in alternatives]
            done = end
        (COPY / file).write_bytes(text + source[done:])
    library = SOURCE / "lib.rs"
    switch_code = SWITCH_CODE % (SWITCH, max(mutant.number for mutant in mutants) + 1, REACHED)
    (COPY / library).write_bytes((ROOT / library).read_bytes() + switch_code.encode())
    return written


def with_switches(original: bytes, alternatives: list[Mutant]) -> bytes:
    text = b""
    for mutant in alternatives:
        chosen = b"crate::mutant::is(%d)" % mutant.number
        if original:
            text += b"if " + chosen + b" { " + mutant.instead + b" } else "
        elif mutant.instead.startswith(b":"):
            field = mutant.instead.rpartition(b".")[2]
            return b": if " + chosen + b" { " + mutant.instead.removeprefix(b":") + b" } else { " + field + b" }"
        elif mutant.instead:
            text += b"if " + chosen + b" { " + mutant.instead + b" } "
        else:
            text += b" if !" + chosen
    return b"(" + text + b"{ " + original + b" })" if original and text else text + original


def cargo(*arguments: str) -> tuple[list[tuple[str, int, int]], list[str]]:
    """Where errors are, and the tests that were built."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "target" / "mutants" / "build"), "RUSTFLAGS": "--cap-lints=warn"}
    command = ["cargo", *arguments, "--package", "lookalike", "--profile", "mutants", "--message-format=json"]
    done = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True)
    errors, tests = [], []
    for line in filter(lambda line: line.startswith("{"), done.stdout.splitlines()):
        message = json.loads(line)
        if message["reason"] == "compiler-message" and message["message"]["level"] == "error":
            spans = [span for span in message["message"]["spans"] if span["is_primary"]]
            errors += [(span["file_name"], span["byte_start"], span["line_start"]) for span in spans]
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            tests.append(message["executable"])
    if done.returncode and not errors:
        raise SystemExit(done.stderr)
    return errors, tests


def run(command: tuple[str, ...], limit: int | None, variables: dict[str, str]) -> tuple[bool | None, float]:
    """Whether the tests passed, or nothing if they came to no end; and how long they computed."""
    started = processor_seconds()
    try:
        done = subprocess.run(
            [*command, "--quiet"],
            cwd=COPY / "crates" / "lookalike",
            env=os.environ | variables,
            timeout=limit and PATIENCE_WAITING * limit,
            preexec_fn=lambda: limit and resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None, processor_seconds() - started
    seconds = processor_seconds() - started
    is_cut_short = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL) and seconds >= 0.9 * (limit or 0)
    return None if is_cut_short else done.returncode == 0, seconds


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def print_table(mutants: list[Mutant]) -> None:
    print("\n| folder | caught | missed | without an end | does not compile | caught of viable |")
    print("|---|---:|---:|---:|---:|---:|")
    for folder in dict.fromkeys(mutant.folder for mutant in mutants):
        count = collections.Counter(mutant.outcome for mutant in mutants if mutant.folder == folder)
        count["missed"] += count["missed, no test comes to it"]
        caught = count["caught"] + count["without an end"]
        viable = caught + count["missed"]
        share = f"{100 * caught / viable:.0f}%" if viable else "–"
        counts = (count[name] for name in ("caught", "missed", "without an end", "does not compile"))
        print(f"| {folder} | {' | '.join(map(str, counts))} | {share} |")


if __name__ == "__main__":
    main()
