"""How rows that are spread over the instances are cut into chunks: as few as keep all slots busy. Pure.

A task compares two chunks, and the head hands each of them out. So an instance's share is cut for the slots of *all*
instances, not for its own: of W shares of c chunks each there are (W c)**2 / 2 tasks, which are to be ``TILES_A_SLOT``
for each slot. The more instances there are, the fewer chunks a share has, down to one; an instance then has several
remote chunks at a time, for each slot to have one to compare and one to come.

What bounds a chunk from above: what a task may do (``Sizing``), and the object store, which holds all chunks that are
there at once. So, with w remote chunks of an instance at a time and ``LEAVING`` w of its own on their way,

    object store of an instance <= (1 + LEAVING) w chunk <= store / 2,    w = 2 slots / c, at least WINDOW
"""

import math
from dataclasses import dataclass
from typing import Self

__all__ = ["AHEAD", "CHUNK_BYTES", "LEAVING", "WINDOW", "Spread", "ring_share"]

CHUNK_BYTES = 256 << 20
"""Largest chunk that travels: a fifth of a second of 10 Gbit/s, so that those of all slots come within seconds.

What takes Ray more than ten it asks for again, and it comes twice."""

WINDOW = 2
"""Fewest remote chunks of an instance at a time: one is compared, the next one travels."""

AHEAD = 2
"""Remote chunks of an instance that come before their turn, where it has room for them."""

LEAVING = 2
"""Chunks of an instance that are away at a time, for each that comes to it: instances do not keep exactly in step."""

FEWEST = 4
"""Chunks of a share, where instances are few: what is given away to balance their work is a chunk."""

FEWEST_BATCHES = 4
"""Of an instance that hands out its pairs: what is told at once is also done again at once, if it is lost."""

BALANCED = 64
"""Chunks of all instances with which a chunk more or less of one of them does not show."""


def ring_share(instances: int) -> float:
    """Return which share of all rows comes to the busiest instance where they meet on the half ring (``schedule``).

    Of an even number, one of two opposites has all of the other's rows come, and the other half of them.
    """
    return instances // 2 / instances


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Where the rows lie, as far as the costs follow from it."""

    instances: int
    """How many compare."""
    slots: int
    """Tasks that one of them runs at once, the one with most."""
    query_rows: int
    """Most rows of an instance, of those that look for neighbors; all, where every instance has all."""
    matrix_rows: int
    """The same of those among which they look."""
    row_bytes: float
    """Of a row that travels, on the instance where they are largest; 0 where none does."""
    coming_bytes: float = 0.0
    """Of rows that come to the busiest instance from the others, and leave the busiest, about."""
    store_bytes: float = math.inf
    """What the smallest object store holds."""

    @classmethod
    def even(cls, rows: int, row_bytes: float, instances: int, slots: int, store_bytes: float = math.inf) -> Self:
        """Return how rows lie that are compared with each other, of which each instance has as many.

        Args:
            rows: All of them.
            row_bytes: Of one.
            instances: How many there are.
            slots: Tasks that all of them run at once.
            store_bytes: What an object store holds.
        """
        share = math.ceil(rows / instances)
        return cls(
            instances=instances,
            slots=math.ceil(slots / instances),
            query_rows=share,
            matrix_rows=share,
            row_bytes=row_bytes,
            coming_bytes=rows * row_bytes * ring_share(instances),
            store_bytes=store_bytes,
        )

    @property
    def fewest_chunks(self) -> int:
        """In how many chunks all rows are cut at least, for the work of the instances to be alike."""
        return min(FEWEST * self.instances, BALANCED)

    def fitting(self, rows: int, columns: int) -> tuple[int, int]:
        """Return how many rows the chunks of both sides have where so many are wanted: equal ones of each share."""
        most = self._most_travelling()
        return self._equal(self.query_rows, min(rows, most)), self._equal(self.matrix_rows, min(columns, most))

    def window(self, rows: int) -> int:
        """Return how many remote chunks of so many rows an instance has at a time."""
        # Of no use are more than two for each slot, nor more than one that is compared and those that come meanwhile.
        return int(max(WINDOW, min(self.room(rows), max(2 * self.slots, 1 + AHEAD))))

    def room(self, rows: int) -> float:
        """Return how many remote chunks of so many rows an instance has room for at a time."""
        if not self.row_bytes:
            return WINDOW
        # Not by ``//``, which makes no number of a store that nobody knows the size of: that holds any number.
        room = self._room_bytes() / (rows * self.row_bytes)
        return room if math.isinf(room) else max(WINDOW, math.floor(room))

    def batch(self, rows: int) -> int:
        """Return how many transfers of such chunks an instance is told of at once, where it hands out their pairs."""
        return int(max(1, min(self.room(rows) / 2, math.ceil(self._transfers(rows) / FEWEST_BATCHES))))

    def batches(self, rows: int) -> int:
        """Return how many times all instances are told of some."""
        return self.instances * math.ceil(self._transfers(rows) / self.batch(rows))

    def _transfers(self, rows: int) -> int:
        """Return with how many chunks of so many rows an instance compares some of its own: others', and its own."""
        own = math.ceil(self.matrix_rows / rows)
        # Its own first each with itself, then with those after it.
        return 2 * own - 1 + math.ceil(self.coming_chunks(rows) - 1e-9)

    def coming_chunks(self, rows: int) -> float:
        """Return how many chunks of so many rows come to each instance, about."""
        return self.coming_bytes / (rows * self.row_bytes) if self.row_bytes else 0.0

    def _room_bytes(self) -> float:
        # Half of the store, for what comes to an instance beside what leaves it.
        return self.store_bytes / 2 / (1 + LEAVING)

    def _most_travelling(self) -> int:
        """Return the most rows of a chunk with which the store has room for as many as keep the slots busy."""
        if not self.row_bytes:
            return max(self.query_rows, self.matrix_rows)
        room = self._room_bytes() / self.row_bytes
        # Of n rows each, w = 2 slots n / share + 1 at most, of which w n have to have room.
        each = 2 * self.slots / max(1, min(self.query_rows, self.matrix_rows))
        enough = room if math.isinf(room) else (math.sqrt(1 + 4 * each * room) - 1) / (2 * each)
        return int(max(1, min(enough, room / WINDOW, CHUNK_BYTES / self.row_bytes)))

    def _equal(self, share: int, rows: int) -> int:
        """Return the rows of the largest of as many equal chunks as a share makes of ``rows`` rows at most."""
        count = math.ceil(share / rows)
        # Opposites on the ring halve one's chunks between them, and of few an odd one shows.
        if 1 < count < BALANCED / self.instances:
            count += count % 2
        return math.ceil(share / count)
