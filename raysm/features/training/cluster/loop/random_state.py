"""Random numbers: seeds that mix several numbers, and the state of this process's generators."""

import contextlib
import hashlib
import io
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch

State: TypeAlias = tuple[object, Any, torch.Tensor]
"""The states of the generators of Python, numpy (None if it is not imported) and torch."""


def seed_of(*parts: int) -> int:
    """Return a 32-bit seed that mixes all parts: similar parts give unrelated generators."""
    text = ":".join(str(int(part)) for part in parts)
    # torch's CPU generator takes 32 bits of its seed, and numpy's no more.
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def seed_all(seed: int) -> None:
    """Seed the generators of Python, numpy and torch, on the CPU and on the GPUs."""
    random.seed(seed)
    if "numpy" in sys.modules:
        # NumPy takes 32 bits, and the user's seed may have more.
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)


def seed_cpu(seed: int) -> None:
    """Seed the generators of the CPU with a seed of 32 bits."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    torch.default_generator.manual_seed(seed)


@contextlib.contextmanager
def seeded(seeds: Iterator[int]) -> Iterator[Iterator[None]]:
    """Yield an iterator whose every step seeds the CPU's generators with the next seed.

    The generators have their former state again after the block.
    """
    before = cpu_state()

    def steps() -> Iterator[None]:
        for seed in seeds:
            seed_cpu(seed)
            yield

    try:
        yield steps()
    finally:
        set_cpu_state(before)


@contextlib.contextmanager
def has_drawn() -> Iterator[Callable[[], bool]]:
    """Yield a function that says after the block whether the block drew a number.

    It compares the states of the CPU's generators.
    """
    before = cpu_state()
    after: list[bool] = []
    yield lambda: after[0]
    after.append(not _are_equal(before, cpu_state()))


def capture_state() -> bytes:
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return to_bytes((*plain(cpu_state()), cuda))


def restore_state(state: bytes) -> None:
    python, drawn, tensor, cuda = from_bytes(state)
    set_cpu_state((python, drawn, tensor))
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda)


def plain(state: State) -> State:
    """Return a state whose arrays are lists, which are plain values."""
    python, drawn, tensor = state
    if drawn is not None:
        name, keys, *others = drawn
        drawn = (name, keys.tolist(), *others)
    return python, drawn, tensor


def to_bytes(value: object) -> bytes:
    """Return bytes of plain values and tensors, which are read without running code."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def from_bytes(value: bytes) -> Any:
    return torch.load(io.BytesIO(value), weights_only=True)


def cpu_state() -> State:
    # If numpy is not imported, it has drawn nothing; importing it takes a tenth of a second.
    drawn = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
    return random.getstate(), drawn, torch.get_rng_state()


def _are_equal(one: State, other: State) -> bool:
    (python, drawn, tensor) = one
    (other_python, other_drawn, other_tensor) = other
    has_drawn = python != other_python or pickle.dumps(drawn) != pickle.dumps(other_drawn)
    return not has_drawn and torch.equal(tensor, other_tensor)


def set_cpu_state(state: State) -> None:
    python, drawn, tensor = state
    random.setstate(python)  # type: ignore[arg-type]
    if drawn is not None:
        import numpy as np

        np.random.set_state(drawn)
    torch.set_rng_state(tensor)
