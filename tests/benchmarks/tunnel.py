"""What a tunnel costs: one byte there and back, and megabytes in one direction, beside the same without a tunnel.

``python tests/benchmarks/tunnel.py [--json]``. Both ends are on this machine, in one process, so what is measured is
raysm's own work; AWS's part, and the way there, comes on top of it. The goal is at most 50 ms more for a call.
"""

import argparse
import json
import os
import socket
import statistics
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = 500
WARM = 50
MEGABYTES = 50
GOAL_MS = 50.0


def round_trips_s(address):
    """Return the seconds of one byte there and back, many times."""
    taken_s = []
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(WARM + ROUNDS):
            began_s = time.perf_counter()
            connection.sendall(b"x")
            assert connection.recv(1) == b"x"
            taken_s.append(time.perf_counter() - began_s)
    return sorted(taken_s[WARM:])


def megabytes_a_second(address):
    """Return how fast bytes come back that are sent by another thread."""
    size = MEGABYTES * 1_000_000
    with socket.create_connection(address) as connection:
        sending = threading.Thread(target=connection.sendall, args=(os.urandom(size),))
        began_s = time.perf_counter()
        sending.start()
        received = 0
        while received < size:
            received += len(connection.recv(1 << 20))
        taken_s = time.perf_counter() - began_s
        sending.join()
    return MEGABYTES / taken_s


def figures(address):
    """Return one way's figures."""
    taken_s = round_trips_s(address)
    return {
        "round trip, median ms": 1000 * statistics.median(taken_s),
        "round trip, p99 ms": 1000 * taken_s[int(0.99 * len(taken_s))],
        "there and back, MB/s": megabytes_a_second(address),
    }


def main():
    """Measure both ways, and say what the tunnel adds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from tests.support.ssm import Served, echoing

    with Served() as served, echoing() as port, served.tunnel(port) as tunnel:
        found = {"direct": figures(("127.0.0.1", port)), "tunnel": figures(("127.0.0.1", tunnel.port))}
    name = "round trip, median ms"
    found["added"] = {"median ms": found["tunnel"][name] - found["direct"][name]}
    if arguments.json:
        print(json.dumps(found))
    else:
        for way, numbers in found.items():
            print(f"{way:8s}", *(f"{label}: {number:.3f}" for label, number in numbers.items()), sep="  ")
    return 0 if found["added"]["median ms"] <= GOAL_MS else 1


if __name__ == "__main__":
    sys.exit(main())
