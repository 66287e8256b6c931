"""Which rows travel where if queries look into a matrix and one of the two is sharded, or both are. Pure.

One of the two stays where it is: each instance compares its chunks of it with all of the other. Of the other, what
every instance has is at home everywhere, and nothing travels; a sharded one is sent, chunk by chunk, to every instance
that has some of what stays. With equal shares of n instances that is balanced, and each sends (n - 1) / n of the rows
that travel. Where both are sharded, that one stays with which the busiest instance is done first; where it makes no
difference, the one that would be more to send.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from raysm.workloads.similarity.layouts.sharded.schedule import TOLERANCE, RowChunk, Share, Transfer

__all__ = ["QueryOperand", "deal_queries"]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryOperand:
    """The queries, or the matrix, in chunks."""

    brings: Literal["queries", "matrix"]
    """Which."""
    shares: Sequence[Share]
    """One for each instance that has any; of rows that lie whole everywhere, each is all of them."""
    everywhere: bool
    """Whether they lie whole everywhere."""
    row_bytes: float = 0.0
    """Of a row that travels."""

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.shares[0].rows if self.everywhere else sum(share.rows for share in self.shares)


def deal_queries(queries: QueryOperand, matrix: QueryOperand) -> dict[str, list[Transfer]]:
    """Return the transfers of each instance, in the order in which they are to be computed."""
    staying, moving = _chosen(queries, matrix)
    ring = [share for share in staying.shares if share.chunks]
    transfers: dict[str, list[Transfer]] = {share.host: [] for share in staying.shares}
    for share in ring:
        for chunk in _coming(moving, share.host):
            transfers[share.host].append(Transfer(share.host, chunk, share.chunks, moving.brings))
    return transfers


def _chosen(queries: QueryOperand, matrix: QueryOperand) -> tuple[QueryOperand, QueryOperand]:
    """Return the one that stays and the one that moves."""
    choices = [
        (staying, moving)
        for staying, moving in ((matrix, queries), (queries, matrix))
        # What every instance has, all of them would compare.
        if not staying.everywhere
    ]
    least = min(_busiest(*choice) for choice in choices)
    quick = [choice for choice in choices if _busiest(*choice) <= least * (1 + TOLERANCE)]
    # Equally fast within the tolerance: what sends least.
    return min(quick, key=lambda choice: _sent_bytes(*choice))


def _busiest(staying: QueryOperand, moving: QueryOperand) -> float:
    """Return the pairs of rows of the slots that have most of them."""
    # Only a head that coordinates has no slots, and it is refused where it has rows: its 0 pairs stay 0.
    return max(share.rows * moving.rows / max(1, share.slots) for share in staying.shares)


def _sent_bytes(staying: QueryOperand, moving: QueryOperand) -> float:
    if moving.everywhere:
        return 0.0
    there = {share.host for share in staying.shares if share.chunks}
    return moving.row_bytes * sum(share.rows * len(there - {share.host}) for share in moving.shares)


def _coming(moving: QueryOperand, host: str) -> list[RowChunk]:
    """Return the chunks that an instance compares: its own first, then those of the next ones on the circle.

    So at any moment each instance sends to one and receives from one.
    """
    by_host: Mapping[str, Share] = {share.host: share for share in moving.shares}
    if moving.everywhere:
        return list(by_host[host].chunks)
    hosts = [share.host for share in moving.shares]
    # An instance that has none of what travels may begin with anybody's.
    at = hosts.index(host) if host in by_host else 0
    return [chunk for other in (*hosts[at:], *hosts[:at]) for chunk in by_host[other].chunks]
