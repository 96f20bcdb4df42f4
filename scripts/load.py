#!/usr/bin/env python3
"""Load on a service from another process, bounded in count and time; loopback only.

    scripts/load.py http://127.0.0.1:7300 texts.txt                      capacity, 50%, 90%, 200%
    scripts/load.py http://127.0.0.1:7300 texts.txt --soak 120           steady load with reloads

Needs nothing but Python. Requests hold one text each (the first tab-separated column of a line of the file), or one
example's features, where the file is in the Extreme Classification format.
Capacity is what a closed loop of `--clients` connections gets; the other phases are open loops: requests are due
at fixed times whatever the answers do, and latency counts from the time a request was due, so that a service that
stalls can't hide it. `sent` counts from when a request was sent: where this script itself is too slow for the rate
(`late_starts`), only that tells of the service. Latencies are of answers with status 200. The token is taken from
LOOKALIKE_TOKEN; reloads need one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import time
import urllib.request
from urllib.parse import urlsplit


def examples(path: str) -> list[dict]:
    """The first few thousand of a file, as the service takes them."""
    with open(path, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in itertools.islice(file, 5001)]
    is_header = lines and len(lines[0].split()) == 3 and all(number.isdigit() for number in lines[0].split())
    if not is_header:
        return [{"text": line.split("\t")[0]} for line in lines]
    pairs = ([field.split(":") for field in line.split(" ") if ":" in field] for line in lines[1:])
    return [{"features": [[int(feature), float(value)] for feature, value in row]} for row in pairs]


class Load:
    def __init__(self, arguments: argparse.Namespace) -> None:
        parts = urlsplit(arguments.url)
        self.host, self.port = parts.hostname, parts.port
        if self.host not in ("127.0.0.1", "localhost", "::1"):
            raise SystemExit("load is made on this machine only: give a loopback address")
        self.url = arguments.url.rstrip("/")
        token = os.environ.get("LOOKALIKE_TOKEN")
        self.authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self.wish = {"k": arguments.k, "search": arguments.search}
        self.requests = itertools.cycle([self.request(example) for example in examples(arguments.examples)])

    def request(self, example: dict) -> bytes:
        body = json.dumps({**example, **self.wish}).encode()
        head = {"Host": self.host, "Content-Type": "application/json", "Content-Length": len(body)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**head, **self.authorization}.items())
        return f"POST /v1/predict HTTP/1.1\r\n{lines}\r\n".encode() + body

    def get(self, path: str, method: str = "GET") -> str:
        request = urllib.request.Request(self.url + path, headers=self.authorization, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def memory(self) -> int:
        lines = self.get("/metrics").splitlines()
        found = [line for line in lines if line.startswith("process_resident_memory_bytes ")]
        return int(float(found[0].split()[1])) if found else 0


class Connection:
    """A kept connection; opened again where the service closed it."""

    def __init__(self, load: Load) -> None:
        self.load, self.streams = load, None

    async def ask(self, request: bytes) -> int:
        for attempt in range(2):
            is_new = self.streams is None
            if is_new:
                self.streams = await asyncio.open_connection(self.load.host, self.load.port)
            reader, writer = self.streams
            try:
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                if b"connection: close" in head.lower():
                    self.close()
                return int(head.split(b" ", 2)[1])
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if is_new or attempt == 1:
                    return 0
        return 0

    def close(self) -> None:
        if self.streams:
            self.streams[1].close()
            self.streams = None


async def closed_loop(load: Load, clients: int, seconds: float) -> dict:
    """Every client asks again as soon as it is answered."""
    took, statuses, end = [], [], time.perf_counter() + seconds

    async def client() -> None:
        connection = Connection(load)
        while (start := time.perf_counter()) < end:
            statuses.append(await connection.ask(next(load.requests)))
            if statuses[-1] == 200:
                took.append(time.perf_counter() - start)
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return summary(took, statuses, seconds)


async def open_loop(load: Load, rate: float, clients: int, seconds: float) -> dict:
    """Requests are due at fixed times; those that find no connection free wait for one, and that counts."""
    took, sent, statuses = [], [], []
    due: asyncio.Queue = asyncio.Queue()
    late = 0

    async def client() -> None:
        connection = Connection(load)
        while (when := await due.get()) is not None:
            start = time.perf_counter()
            status = await connection.ask(next(load.requests))
            statuses.append(status)
            if status == 200:
                took.append(time.perf_counter() - when)
                sent.append(time.perf_counter() - start)
        connection.close()

    workers = [asyncio.create_task(client()) for _ in range(clients)]
    start = time.perf_counter()
    for number in range(int(rate * seconds)):
        when = start + number / rate
        if (wait := when - time.perf_counter()) > 0:
            await asyncio.sleep(wait)
        elif wait < -0.005:
            late += 1
        due.put_nowait(when)
    for _ in workers:
        due.put_nowait(None)
    await asyncio.gather(*workers)
    found = summary(took, statuses, time.perf_counter() - start)
    return {**found, "sent_p50_ms": at(sent, 0.5), "sent_p99_ms": at(sent, 0.99), "late_starts": late}


def at(took: list[float], share: float) -> float | None:
    """So many milliseconds are enough for this share."""
    took.sort()
    return round(1000 * took[min(len(took) - 1, int(share * len(took)))], 2) if took else None


def summary(took: list[float], statuses: list[int], seconds: float) -> dict:
    counts = {str(status): statuses.count(status) for status in sorted(set(statuses))}
    return {
        "answers_per_second": round(counts.get("200", 0) / seconds, 1),
        "p50_ms": at(took, 0.5),
        "p99_ms": at(took, 0.99),
        "max_ms": at(took, 1.0),
        "statuses": counts,
    }


async def phases(load: Load, arguments: argparse.Namespace) -> None:
    def tell(phase: str, found: dict) -> None:
        print(json.dumps({"phase": phase, **found, "memory_mb": load.memory() >> 20}), flush=True)

    await closed_loop(load, arguments.clients, min(2.0, arguments.seconds))
    capacity = await closed_loop(load, arguments.clients, arguments.seconds)
    tell(f"capacity, {arguments.clients} clients", capacity)
    for share in (0.5, 0.9, 2.0):
        rate = share * capacity["answers_per_second"]
        found = await open_loop(load, rate, arguments.open_clients, arguments.seconds)
        tell(f"{share:.0%} of capacity ({rate:.0f}/s)", found)


async def soak(load: Load, arguments: argparse.Namespace) -> None:
    """Steady load below capacity, and a reload every few seconds."""
    quick = await closed_loop(load, arguments.clients, 3.0)
    rate = 0.5 * quick["answers_per_second"]
    before, end, reloads, failed = load.memory(), time.perf_counter() + arguments.soak, 0, 0
    print(json.dumps({"phase": "soak begins", "rate": rate, "memory_mb": before >> 20}), flush=True)

    async def reload() -> None:
        nonlocal reloads, failed
        while time.perf_counter() < end:
            await asyncio.sleep(arguments.reload_every)
            try:
                await asyncio.to_thread(load.get, "/v1/reload", "POST")
                reloads += 1
            except OSError:
                failed += 1

    found, _ = await asyncio.gather(open_loop(load, rate, arguments.open_clients, arguments.soak), reload())
    result = {"reloads": reloads, "reloads_failed": failed, "memory_mb": load.memory() >> 20}
    print(json.dumps({"phase": "soak", **found, **result}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("examples", help="a file of texts, one a line, or of examples in the Extreme Classification format")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase, at most 60")
    parser.add_argument("--clients", type=int, default=64, help="connections of the closed loop")
    parser.add_argument("--open-clients", type=int, default=64, help="connections of the open loops")
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--search", choices=["exact", "fast"], default="exact")
    parser.add_argument("--soak", type=float, default=0.0, help="seconds of steady load with reloads, at most 600")
    parser.add_argument("--reload-every", type=float, default=5.0)
    arguments = parser.parse_args()
    arguments.seconds, arguments.soak = min(arguments.seconds, 60.0), min(arguments.soak, 600.0)
    load = Load(arguments)
    asyncio.run(soak(load, arguments) if arguments.soak else phases(load, arguments))


if __name__ == "__main__":
    main()
