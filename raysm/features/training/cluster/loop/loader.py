"""What reads batches, in this process or ahead of it in processes of its own."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset


class Loader:
    """A data set that is asked for one batch after the other, in passes.

    Request ``number`` goes to worker ``number % workers``, and the answers keep the order of the
    requests.
    """

    def __init__(
        self,
        reader: Dataset[Any],
        *,
        identity: tuple[object, ...],
        workers: int,
        pin_memory: bool,
        persistent_workers: bool,
    ) -> None:
        self.identity = identity
        """Objects that a loop must share to read by the same workers."""
        self.is_reading = False
        self._requests = _Requests()
        self._loader = DataLoader(
            reader,
            batch_size=None,
            sampler=self._requests,
            num_workers=workers,
            collate_fn=_as_it_is,
            pin_memory=pin_memory,
            persistent_workers=persistent_workers,
            # A generator of its own: beginning an epoch again must not draw from the one that
            # training draws from.
            generator=torch.Generator(),
        )

    def read(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Yield what the reader returns for each request of one pass."""
        self.is_reading = True
        self._requests.of_pass = requests
        try:
            yield from self._loader
        finally:
            self.is_reading = False


class _Requests(Iterable[Any]):
    """A sampler, which the loader asks anew in each pass."""

    def __init__(self) -> None:
        self.of_pass: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        return self.of_pass


def _as_it_is(batch: Any) -> Any:
    return batch
