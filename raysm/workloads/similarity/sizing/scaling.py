"""How long top-k takes on many instances, term by term: who pays each, and what bounds it. Pure.

What flows in is what is asked for, the machines, and how the rows are cut; what flows out are seconds. ``Sizing``
chooses by the same numbers, ``tests/benchmarks/scaling.py`` prints them, ``docs/explanation/scaling.md`` explains them.

With N rows of D columns in B blocks of n rows, T = B (B + 1) / 2 tiles, and W instances:

    phase    term         who        bound    seconds
    prepare  norms        tasks      cores    N D NORM_S / slots
             known        head       network  N KNOWN_BYTES / rate * log2(W + 1)
             begin        head       cores    MERGING_S, where instances merge
    compare  product      tasks      cores    N**2 / 2 D PRODUCT_S / slots
             travel       tasks      network  bytes of rows that come to an instance / rate, where they are shared out
             alone        tasks      network  own rows, but for the first chunks' travel; the last chunk: none travels
             dispatch     head       cores    tasks of the head, or batches of the instances' * PART_S
             dealing      instances  cores    tasks of an instance * PART_S, where each hands out its own
             merging      whoever    cores    parts * PART_S + their rows * row_s, by all who merge
             keys         whoever    network  rows of all parts * KEY_BYTES, by all who merge
    gather   writing      whoever    disk     N * bytes of a row / rate, by all who write
             finish       head       cores    W * FINISH_S

Queries look into other rows: of Q of them, all Q N pairs are compared, and a tile has parts of its rows alone. Rows
that are compared by their elements take less than this product, else they would be compared as dense ones: the model
says then how long the tasks take at most.

There are three ways to merge: the head takes in each tile's part; *groups* of tiles are merged on the instances, and
the head takes in theirs (``modes.partial_merge``); or each instance owns *ranges* of rows, is sent the parts of its
rows, and writes them itself (``owning``). What one of them pays within a phase it pays one after the other, what
different ones pay, or one pays to another bound, at the same time.

No term was measured on several machines: what is known of one instance was measured on two cores with AMX, the rates of
networks and disks are what AWS says of its smaller types.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from raysm.workloads.similarity.sizing.spread import AHEAD

__all__ = [
    "GROUPS",
    "HEAD",
    "HEAD_SHARE",
    "MERGING_S",
    "NETWORK_BYTES_S",
    "PART_S",
    "PRODUCT_S",
    "RANGES",
    "Cut",
    "Machines",
    "Problem",
    "Term",
    "alone_s",
    "terms",
    "total_s",
    "waits_for",
]

PRODUCT_S = 5.5e-12
"""What one element of a pair costs a slot, about."""

NORM_S = 7e-9
"""What an element of the matrix costs a slot to be prepared, about."""

PART_S = 2e-3
"""What a part costs whoever takes it in, however small.

Measured on two cores with AMX, with tasks that return parts at once: 0.5 to 0.7 ms of the thread that asks Ray, with 32
parts unfinished, and 1.1 to 1.3 ms with 1024; and 0.6 ms for the record."""

MERGING_S = 2.0
"""What it takes to begin to merge on the instances: the processes that do it are started, and import NumPy.

Measured on two cores, which the tasks had at the same time: 1.2 s."""

FINISH_S = 0.01
"""What it costs the head to ask an instance for its file of the result, once."""

HEAD_SHARE = 0.5
"""Of the tasks' time, what the head may take for their parts."""

KNOWN_BYTES = 10
"""Of each row: its norm, 8 bytes, and its exponent, 2; they come to the head, and leave it for every instance."""

KEY_BYTES = 24
"""Of each row of a part that travels: the bound that its task is told, 4 bytes, how many keys it has, 4, and two keys.

A row has 0.2 to 2 keys that reach the bounds, once the first tiles have given it one."""

NETWORK_BYTES_S = 1.25e9
"""Of one instance, each way: 10 Gbit/s, which the types from 4xlarge on have as their baseline or above
(https://docs.aws.amazon.com/ec2/latest/instancetypes/co.html)."""

Who = Literal["tasks", "head", "instances"]
Bound = Literal["cores", "network", "disk"]
Phase = Literal["prepare", "compare", "gather"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What is asked for."""

    rows: int
    """Those that look for neighbors: N, or Q."""
    columns: int
    """D."""
    k: int
    """How many neighbors of each row."""
    row_s: float
    """What a row of a part costs whoever merges it."""
    among: int | None = None
    """Rows of another matrix among which they look; None: among themselves, each pair for both."""

    @property
    def pairs(self) -> float:
        """How many are compared."""
        return self.rows**2 / 2 if self.among is None else self.rows * self.among

    @property
    def prepared_rows(self) -> int:
        """Rows whose norms have to be known."""
        return self.rows + (self.among or 0)

    @property
    def sides(self) -> int:
        """How many blocks of rows a tile has keys of: its rows, and of a self-join its columns."""
        return 2 if self.among is None else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """What there is."""

    instances: int
    """W; each has one network interface and one disk."""
    slots: int
    """Tasks that all of them run at once, about their cores."""
    network_bytes_s: float = NETWORK_BYTES_S
    """Of one instance, each way."""
    disk_bytes_s: float = 250e6
    """Of one instance: gp2, all that SageMaker offers beside instances' own disks, takes no more
    (https://docs.aws.amazon.com/ebs/latest/userguide/general-purpose.html)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How the pairs are cut, and who merges them."""

    block_rows: int
    """Rows of a tile, n."""
    tiles: int
    """T."""
    parts: int
    """What the head dispatches, and takes in: as many as there are tiles, or groups of them."""
    part_rows: int
    """Rows of one of those, and of a self-join as many columns."""
    mergers: int = 1
    """How many instances or processes merge; 1 is the head alone."""
    ranges: int = 0
    """Ranges of rows that the instances own; 0: the head has the result."""
    batches: int = 0
    """In how many the head tells the instances which tiles are theirs to hand out; 0: it hands out all parts."""
    coming_bytes: float = 0.0
    """Of rows that come to each instance from the others; 0 where every instance has all."""
    coming_chunks: float = 0.0
    """In how many pieces those come, one after the other."""

    @property
    def way(self) -> str:
        """Who merges, in one word."""
        if self.ranges:
            return RANGES
        return GROUPS if self.parts < self.tiles else HEAD


HEAD, GROUPS, RANGES = "head", "groups", "ranges"


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """One of the costs."""

    name: str
    """Which, ``product``."""
    phase: Phase
    """When."""
    who: Who
    """Who pays it."""
    bound: Bound
    """What would make it less."""
    seconds: float
    """How long it takes."""


def terms(problem: Problem, machines: Machines, cut: Cut) -> tuple[Term, ...]:
    """Return all terms; of a way that has none of a term, 0 seconds."""
    rows, instances, slots = problem.rows, machines.instances, machines.slots
    merges: Who = "head" if cut.way == HEAD else "instances"
    writes: Who = "instances" if cut.way == RANGES else "head"
    # Of each neighbor an int64 and a float32, and the row's own number.
    written = rows * (12 * problem.k + 8) / (min(cut.ranges, instances) or 1)
    # A part that the head only hears of costs as much as one that it takes in: most of it is Ray's.
    head_s = (cut.batches or cut.parts) * PART_S
    if cut.way == GROUPS:
        head_s += cut.parts * problem.sides * cut.part_rows * problem.row_s
    product_s = problem.pairs * problem.columns * PRODUCT_S / slots
    travel_s = cut.coming_bytes / machines.network_bytes_s
    return (
        Term(
            name="norms",
            phase="prepare",
            who="tasks",
            bound="cores",
            seconds=problem.prepared_rows * problem.columns * NORM_S / slots,
        ),
        Term(
            name="known",
            phase="prepare",
            who="head",
            bound="network",
            # Ray's store hands an object on from whoever has it: each round doubles those who do.
            seconds=problem.prepared_rows * KNOWN_BYTES / machines.network_bytes_s * math.log2(instances + 1),
        ),
        Term(
            name="begin",
            phase="prepare",
            who="head",
            bound="cores",
            seconds=0.0 if cut.way == HEAD else MERGING_S,
        ),
        Term(
            name="product",
            phase="compare",
            who="tasks",
            bound="cores",
            seconds=product_s,
        ),
        Term(
            name="travel",
            phase="compare",
            who="tasks",
            bound="network",
            seconds=travel_s,
        ),
        Term(
            name="alone",
            phase="compare",
            who="tasks",
            bound="network",
            seconds=alone_s(cut.coming_chunks, product_s, travel_s, instances),
        ),
        Term(name="dispatch", phase="compare", who="head", bound="cores", seconds=head_s),
        Term(
            name="dealing",
            phase="compare",
            who="instances",
            bound="cores",
            # Beside its tasks it asks for the chunks that come, each by a task of its own.
            seconds=PART_S * (cut.tiles / instances + cut.coming_chunks) if cut.batches else 0.0,
        ),
        Term(
            name="merging",
            phase="compare",
            who=merges,
            bound="cores",
            seconds=_merging_s(problem, cut),
        ),
        Term(
            name="keys",
            phase="compare",
            who=merges,
            bound="network",
            seconds=_key_bytes(problem, cut) / _receivers(cut, instances) / machines.network_bytes_s,
        ),
        Term(name="writing", phase="gather", who=writes, bound="disk", seconds=written / machines.disk_bytes_s),
        Term(name="finish", phase="gather", who="head", bound="cores", seconds=cut.ranges * FINISH_S),
    )


def alone_s(coming_chunks: float, product_s: float, travel_s: float, instances: int) -> float:
    """Return what of the product is computed while no rows travel, which adds up with their travelling.

    Args:
        coming_chunks: How many come to each instance; 0: none ever travels.
        product_s: Seconds that all slots need for all pairs.
        travel_s: Seconds that all chunks need to come, one after the other.
        instances: Among how many the rows are shared out.
    """
    if not coming_chunks:
        return 0.0
    own_s = product_s / instances
    # The first chunks come beside the instance's own rows, each other one beside those before it, and nothing comes
    # beside the last.
    return max(0.0, own_s - travel_s * min(1.0, AHEAD / coming_chunks)) + (product_s - own_s) / coming_chunks


def _key_bytes(problem: Problem, cut: Cut) -> float:
    return cut.tiles * problem.sides * cut.block_rows * KEY_BYTES


def _receivers(cut: Cut, instances: int) -> int:
    # Several mergers of one instance share its network.
    return 1 if cut.way == HEAD else min(instances, cut.mergers)


def _merging_s(problem: Problem, cut: Cut) -> float:
    """Return what merging takes whoever merges, beside the ``PART_S`` of the head, which is its dispatching."""
    # Where a range begins within a block of rows, its tiles' parts go to two owners.
    pieces = problem.sides * (1 + cut.block_rows * cut.ranges / problem.rows) if cut.ranges else 1
    part_s = (0.0 if cut.way == HEAD else pieces * PART_S) + problem.sides * cut.block_rows * problem.row_s
    return cut.tiles * part_s / cut.mergers


def total_s(costs: Iterable[Term]) -> float:
    """Return how long all of it takes: of each phase what its slowest needs."""
    # No phase begins before the last one has ended everywhere, so their slowest add up.
    return sum(max(payers.values()) for payers in _paid(costs).values())


def waits_for(costs: Iterable[Term]) -> tuple[Who, Bound]:
    """Return who is waited for longest, and for what."""
    slowest = (max(payers.items(), key=lambda one: one[1]) for payers in _paid(costs).values())
    return max(slowest, key=lambda one: one[1])[0]


def _paid(costs: Iterable[Term]) -> dict[Phase, dict[tuple[Who, Bound], float]]:
    paid: dict[Phase, dict[tuple[Who, Bound], float]] = defaultdict(lambda: defaultdict(float))
    for term in costs:
        paid[term.phase][term.who, term.bound] += term.seconds
    return paid
