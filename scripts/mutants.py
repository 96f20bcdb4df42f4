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
that a mutant costs a run of the tests, up to the first that fails, and no build. What
can't stand behind a switch (code of constants, for one) counts as not compiling.
The copy and its build are in target/mutants.
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
COPY = ROOT / "target" / "mutants" / "tree"
SWITCH = "LOOKALIKE_MUTANT"
SWITCH_CODE = f"""
mod mutant {{
    static CHOSEN: std::sync::LazyLock<Option<String>> = std::sync::LazyLock::new(|| std::env::var("{SWITCH}").ok());
    static NUMBER: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| CHOSEN.as_ref().and_then(|text| text.parse().ok()).unwrap_or(0));
    #[inline]
    pub(crate) fn is(number: u32) -> bool {{
        *NUMBER == number
    }}
}}
"""
# A mutant that computes for so many times what the tests take is caught. Seconds are those
# of the processor, so that a busy machine catches nothing; one that only waits is given up
# after this many times as long by the clock.
PATIENCE, PATIENCE_SECONDS, PATIENCE_WAITING = 10, 60, 20


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
    parser.add_argument("--folders", nargs="+", choices=FOLDERS, default=FOLDERS)
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
    command = ["cargo", "mutants", "--package", "lookalike", "--file", f"{SOURCE}/{folder}/**/*.rs"]
    # Their own tests are no subject of tests.
    command += ["--exclude", "**/tests.rs", "--list", "--json"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return [mutant_of(folder, description) for description in json.loads(listed.stdout)]


def choose(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    if count == 0 or count >= len(mutants):
        return mutants
    return random.Random(seed).sample(mutants, count)


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


def try_all(mutants: list[Mutant]) -> None:
    copy_tree()
    tests = build(mutants)
    seconds = {test: run(test, 0, None)[1] for test in tests}
    tests.sort(key=seconds.get)
    for mutant in mutants:
        if mutant.outcome:
            continue
        mutant.outcome = outcome(mutant, tests, seconds)
        print(f"{mutant.outcome}: {mutant.name}", flush=True)


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
    (COPY / library).write_bytes((ROOT / library).read_bytes() + SWITCH_CODE.encode())
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


def outcome(mutant: Mutant, tests: list[str], seconds: dict[str, float]) -> str:
    for test in tests:
        has_passed, _ = run(test, mutant.number, int(max(PATIENCE_SECONDS, PATIENCE * seconds[test])))
        if has_passed is None:
            return "without an end"
        if not has_passed:
            return "caught"
    return "missed"


def run(test: str, number: int, limit: int | None) -> tuple[bool | None, float]:
    """Whether the tests passed, or nothing if they came to no end; and how long they computed."""
    started = processor_seconds()
    try:
        done = subprocess.run(
            [test, "--quiet"],
            cwd=COPY / "crates" / "lookalike",
            env=os.environ | {SWITCH: str(number)},
            timeout=limit and PATIENCE_WAITING * limit,
            preexec_fn=lambda: limit and resource.setrlimit(resource.RLIMIT_CPU, (limit, limit)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return None, processor_seconds() - started
    if number == 0 and done.returncode:
        raise SystemExit(f"{test} fails without any mutant")
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
        caught = count["caught"] + count["without an end"]
        viable = caught + count["missed"]
        share = f"{100 * caught / viable:.0f}%" if viable else "–"
        counts = (count[name] for name in ("caught", "missed", "without an end", "does not compile"))
        print(f"| {folder} | {' | '.join(map(str, counts))} | {share} |")


if __name__ == "__main__":
    main()
