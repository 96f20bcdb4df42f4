#!/usr/bin/env python3
"""Runs a command on two ranks that are in two network namespaces, over a link that takes its time.

    scripts/ranks_over_a_link.py --delay-ms 1 target/release/lookalike train train.txt --preset plain

Wants root, Open MPI and /dev/net/tun. The link is two tap devices and a thread each way that hands
every packet on when its time has come, so that it works where the kernel has no `tc netem`; it carries
some hundred megabits a second and is no faster than Python. Without a delay it is a pair of virtual
Ethernet devices, as fast as the kernel.
"""

import argparse
import collections
import fcntl
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time

HOSTS = {"lookalike-a": "10.77.0.1", "lookalike-b": "10.77.0.2"}
NETWORK = "10.77.0.0/24"
TUNSETIFF, TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
# What mpirun starts the second rank's daemon with, in the place of ssh.
AGENT = """#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
"""


def ip(*words):
    subprocess.check_call(["ip", *words])


def tap(host, number):
    """A device in a namespace; whoever reads the file has what is sent over it."""
    name = f"lookalike{number}"
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22s", name.encode(), TAP_WITHOUT_HEADER, b""))
    ip("link", "set", name, "netns", host)
    join(host, name)
    return device


def join(host, name):
    ip("-n", host, "addr", "add", f"{HOSTS[host]}/24", "dev", name)
    ip("-n", host, "link", "set", name, "mtu", "9000", "up", "txqueuelen", "10000")
    ip("-n", host, "link", "set", "lo", "up")


def carry(source, target, delay):
    """Hands packets on, each when its time has come."""
    waiting, is_any = collections.deque(), threading.Condition()

    def take():
        while True:
            try:
                packet = os.read(source, 1 << 16)
            except OSError:
                return  # The namespace is gone.
            with is_any:
                waiting.append((time.monotonic() + delay, packet))
                is_any.notify()

    threading.Thread(target=take, daemon=True).start()
    while True:
        with is_any:
            while not waiting:
                is_any.wait()
            due, packet = waiting.popleft()
        time.sleep(max(due - time.monotonic(), 0))
        os.write(target, packet)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=1.0, help="one way, or 0")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    names = pathlib.Path("/etc/netns")
    try:
        for host in HOSTS:
            ip("netns", "add", host)
            (names / host).mkdir(parents=True)
            lines = [f"{address} {name}\n" for name, address in HOSTS.items()]
            (names / host / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        if given.delay_ms == 0:
            first, second = HOSTS
            ip("link", "add", "lookalike0", "netns", first, "type", "veth", "peer", "lookalike1", "netns", second)
            join(first, "lookalike0")
            join(second, "lookalike1")
        else:
            first, second = (tap(host, number) for number, host in enumerate(HOSTS))
            for ends in [(first, second), (second, first)]:
                threading.Thread(target=carry, args=(*ends, given.delay_ms / 1000), daemon=True).start()
        with tempfile.TemporaryDirectory() as folder:
            agent = pathlib.Path(folder) / "agent"
            agent.write_text(AGENT)
            agent.chmod(0o755)
            over = ["--mca", "plm_rsh_agent", str(agent), "--mca", "btl", "tcp,self"]
            over += [word for layer in ("oob", "btl") for word in ("--mca", f"{layer}_tcp_if_include", NETWORK)]
            mpirun = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--host", ",".join(HOSTS), *over]
            sys.exit(subprocess.call([agent, next(iter(HOSTS)), *mpirun, *given.command]))
    finally:
        for host in HOSTS:
            subprocess.call(["ip", "netns", "del", host], stderr=subprocess.DEVNULL)
            (names / host / "hosts").unlink(missing_ok=True)
            if (names / host).is_dir():
                (names / host).rmdir()


if __name__ == "__main__":
    main()
