"""Batches: read from a data set, split into inputs and target, moved, and cut into pieces."""

import contextlib
import hashlib
import io
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import Dataset, Subset, TensorDataset, default_collate

from raysm.errors import InvalidInput


def inputs_and_target(batch: Any) -> tuple[tuple[Any, ...], Any]:
    # A dict has no order in which its values could be arguments.
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        raise InvalidInput(
            f"training.step takes (input, …, target), got a {type(batch).__name__}; give a tuple "
            "of tensors"
        )
    return tuple(batch[:-1]), batch[-1]


def on_device(batch: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return batch
    # Any nesting that the user's collate makes; without waiting, as the loader's memory is pinned.
    return pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), batch
    )


def rows_of(batch: Any) -> int:
    shapes = [
        tuple(leaf.shape) for leaf in pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)
    ]
    # A tensor with other rows, such as one number for the whole batch, would get a wrong weight.
    if not shapes or len({shape[:1] for shape in shapes}) > 1 or not shapes[0]:
        raise InvalidInput(
            f"a batch's rows are its tensors' first dimension, got shapes {shapes}: give each "
            "tensor an entry per row"
        )
    return shapes[0][0]


def pieces(batch: Any, count: int) -> Iterator[tuple[Any, float]]:
    """Yield a batch in ``count`` pieces, and each one's share of the rows.

    The pieces differ by one row at most. A piece without rows is the first row with a share of 0:
    ranks that compute together need equally many pieces.
    """
    rows = rows_of(batch)
    each, more = divmod(rows, count)
    first = 0
    for number in range(count):
        size = each + (number < more)
        begin, stop = (first, first + size) if size else (0, 1)
        yield _slice(batch, begin, stop), size / rows
        first += size


def _slice(batch: Any, begin: int, stop: int) -> Any:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[begin:stop], batch)


class Reader(Dataset[Any]):
    def __init__(self, dataset: Any, seed: int, collate: Callable[[list[Any]], Any]) -> None:
        self._dataset = dataset
        self._seed = seed
        self._collate = collate
        self._reads_slices = hasattr(dataset, "__getitems__")
        # Plain tensors draw nothing, and are cut in one go: row by row takes a hundred times as
        # long.
        self._plain = _plain(dataset) if collate is default_collate else None

    def __getitem__(self, rows_of_epoch: tuple[int, Sequence[int]]) -> Any:
        epoch, rows = rows_of_epoch
        if self._plain is not None:
            tensors, subsets = self._plain
            index = torch.tensor(rows)
            for subset in subsets:
                index = subset[index]
            return [tensor[index] for tensor in tensors]
        seeds = [seed_of(self._seed, epoch, row) for row in rows]
        if self._reads_slices:
            with seeded(iter(seeds)) as next_sample:
                next(next_sample)
                with has_drawn() as drawn:
                    samples = self._dataset.__getitems__(list(rows))
                if not drawn():
                    return self._collate(samples)
            # All rows drew by the first row's seed: a row's numbers would depend on how many
            # workers share the batch.
            self._reads_slices = False
        with seeded(iter(seeds)) as next_sample:
            return self._collate(
                [self._sample(row) for row, _ in zip(rows, next_sample, strict=True)]
            )

    def _sample(self, row: int) -> Any:
        if hasattr(self._dataset, "__getitems__"):
            (sample,) = self._dataset.__getitems__([row])
            return sample
        return self._dataset[row]


def _plain(dataset: Any) -> tuple[tuple[torch.Tensor, ...], list[torch.Tensor]] | None:
    subsets = []
    while type(dataset) is Subset:
        subsets.append(torch.as_tensor(dataset.indices, dtype=torch.int64))
        dataset = dataset.dataset
    return (dataset.tensors, subsets) if type(dataset) is TensorDataset else None


_State: TypeAlias = tuple[object, Any, torch.Tensor]
"""The generators of Python, numpy (None if it is not imported) and torch."""


def seed_of(*parts: int) -> int:
    """Return a 32-bit seed that mixes all parts.

    Neighbouring numbers then give unrelated generators.
    """
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


@contextlib.contextmanager
def seeded(seeds: Iterator[int]) -> Iterator[Iterator[None]]:
    """Yield an iterator whose every step seeds the CPU's generators with the next seed.

    Restore them at the end.
    """
    before = _cpu_state()

    def steps() -> Iterator[None]:
        for seed in seeds:
            random.seed(seed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(seed)
            torch.default_generator.manual_seed(seed)
            yield

    try:
        yield steps()
    finally:
        _set_cpu_state(before)


@contextlib.contextmanager
def has_drawn() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether the block drew a number.

    Call it after the block. It knows the CPU's generators.
    """
    before = _cpu_state()
    after: list[bool] = []
    yield lambda: after[0]
    after.append(not _are_equal(before, _cpu_state()))


def capture_state() -> bytes:
    python, drawn, tensor = _cpu_state()
    if drawn is not None:
        name, keys, *others = drawn  # a list, because an array is not a plain value
        drawn = (name, keys.tolist(), *others)
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    # Bytes of plain values and tensors, which are read without running code.
    buffer = io.BytesIO()
    torch.save((python, drawn, tensor, cuda), buffer)
    return buffer.getvalue()


def restore_state(state: bytes) -> None:
    python, drawn, tensor, cuda = torch.load(io.BytesIO(state), weights_only=True)
    _set_cpu_state((python, drawn, tensor))
    if cuda is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(cuda)


def _cpu_state() -> _State:
    # If numpy is not imported, it has drawn nothing; importing it takes a tenth of a second.
    drawn = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
    return random.getstate(), drawn, torch.get_rng_state()


def _are_equal(one: _State, other: _State) -> bool:
    (python, drawn, tensor) = one
    (other_python, other_drawn, other_tensor) = other
    has_drawn = python != other_python or pickle.dumps(drawn) != pickle.dumps(other_drawn)
    return not has_drawn and torch.equal(tensor, other_tensor)


def _set_cpu_state(state: _State) -> None:
    python, drawn, tensor = state
    random.setstate(python)  # type: ignore[arg-type]
    if drawn is not None:
        import numpy as np

        np.random.set_state(drawn)
    torch.set_rng_state(tensor)
