#!/usr/bin/env python3
"""What a training step on many machines would take: the model of docs/scaling.md.

Predictions, not measurements. Compute is calibrated on one machine, the wire is
counted byte by byte as the program does, bandwidth and latency are assumed.
"""

import argparse

# Measured, quiet, two Zen 3 cores, 670,091 classes, batch 1,024, hidden 128, 3,905
# candidates an example (docs/performance.md): core-seconds.
PAIR = (0.0056 + 0.0129 + 0.0295 + 0.0044 + 0.0742) * 2 / (1024 * 3905)
EXAMPLE = (0.0018 + 0.0080) * 2 / 1024  # input layer
REHASH = 0.14 * 2 / (670_091 * 50)  # a class and table
# Bytes a class: vector and two moments in single precision, and an id a table.
VECTORS = 3 * 4


def wire(ranks, batch, width, tables, sampled, near):
    """Bytes that a rank sends in a step of LSH Embedding with selection, and exchanges."""
    reduced = 2 * (ranks - 1) / ranks
    sums = 2 * 4 * batch * width + 12 * batch + 8 * batch * tables + 4 * batch + 8 * batch + 4 * batch * near
    gathered = (8 * batch + 4 * batch * sampled + 16) * (ranks - 1)
    return sums * reduced + gathered, 17 + 2 * (near > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cores", type=int, default=16, help="cores a machine")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--sampled", type=int, default=17, help="sampled scores an example that ranks tell")
    parser.add_argument("--features", type=int, default=1_000_000, help="rows of the input layer")
    parser.add_argument("--near", type=int, default=0, help="sparse scores an example: 52 with sparse weights")
    parser.add_argument("--latency-us", type=float, default=20.0, help="of a message, software included")
    given = parser.parse_args()
    print("| classes | machines | memory each | compute | sent a step | wire, 25 / 100 Gbit/s | refresh |")
    print("|---|---|---|---|---|---|---|")
    for classes in (10**7, 10**8, 10**9):
        tables = min(max(2**26 // classes, 64), 400)
        for ranks in (8, 64, 512):
            memory = classes * (VECTORS * given.width + 4 * tables) + given.features * VECTORS * given.width
            memory /= ranks
            pairs = given.batch * given.candidates * PAIR / (ranks * given.cores)
            compute = pairs + given.batch * EXAMPLE / (ranks * given.cores)
            sent, exchanges = wire(
                ranks, given.batch, given.width, tables, given.sampled, given.near
            )
            latency = exchanges * given.latency_us * 1e-6 * (ranks - 1).bit_length()
            times = [1000 * (latency + 8 * sent / (gbits * 1e9)) for gbits in (25, 100)]
            refresh = classes * tables * REHASH / (ranks * given.cores)
            print(
                f"| {classes:,} | {ranks} | {memory / 1e9:,.1f} GB | {1000 * compute:.1f} ms | {sent / 1e6:.1f} MB "
                f"| {times[0]:.1f} / {times[1]:.1f} ms | {refresh:.2f} s |"
            )


if __name__ == "__main__":
    main()
