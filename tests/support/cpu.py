"""Seconds of a core as a usual machine would count them: a bound on them must not fail where the machine is slow."""

import contextlib
import time
from dataclasses import dataclass

LOOP_S = 0.05
"""What the loop below takes on a machine as the bounds are meant for."""


@dataclass(slots=True)
class Used:
    """What a block has used."""

    seconds: float = 0.0


@contextlib.contextmanager
def counted():
    """Run the block; then ``seconds`` are its processor seconds, as an idle machine would have taken them."""
    used = Used()
    before = _loop_s()
    begin = time.process_time()
    yield used
    spent = time.process_time() - begin
    used.seconds = spent * LOOP_S / max(LOOP_S, before, _loop_s())


def _loop_s():
    begin = time.process_time()
    seen = {}
    for number in range(300_000):
        seen[number % 1000] = (number, str(number % 10))
    return time.process_time() - begin
