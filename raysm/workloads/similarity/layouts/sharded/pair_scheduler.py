"""Hands the meetings of a schedule out, so that rows travel while others are compared, and few are on their way.

Each instance has two unfinished tasks for each slot, so the next one's rows come while a slot computes. At most
``WINDOW`` visitors are on their way to an instance or being met there; at most ``LEAVING`` parcels of an instance are
on their way elsewhere or being met. Each travels as an object of Ray's store of its own, made by a task on the instance
that has the rows (so Ray makes it anew if it is lost), and dropped as soon as the visitor has met everybody. So

    object store of an instance <= (WINDOW + LEAVING) * parcel + results on their way to the head.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysm.workloads.blocks import LATER, TileBlock
from raysm.workloads.placed import PlacedBlock
from raysm.workloads.similarity.layouts.sharded.schedule import Parcel, Visit
from raysm.workloads.similarity.reading.matrix import natural

__all__ = ["LEAVING", "WINDOW", "Feed", "Meeting", "meetings"]

WINDOW = 2
"""Visitors of an instance at a time: one is met, the next one travels."""

LEAVING = 4
"""Parcels of an instance that are away at a time: instances do not keep exactly in step."""


@dataclass(frozen=True, slots=True, eq=False)
class Meeting(PlacedBlock):
    """Two parcels, or one and itself, of which the host has at least one: what one task compares."""

    host: str
    """Where."""
    left: Parcel
    """The rows of the tile: of the two, the one that comes first in line."""
    right: Parcel
    """Its columns."""
    piece: TileBlock | None = None
    """The part of the tile that is meant, in rows of the two parcels; None is all of it."""
    inputs: tuple[Any, ...] = ()
    """The rows of the one that is not the host's, as an object of Ray."""
    told: Any = None
    """What the task is told that does not change its answer."""

    @property
    def visitor(self) -> Parcel | None:
        """The one that is not the host's."""
        return next((parcel for parcel in (self.left, self.right) if parcel.host != self.host), None)

    @property
    def needs(self) -> tuple[str, ...]:
        """The other instance that has to be there."""
        return () if self.visitor is None else (self.visitor.host,)

    @property
    def area(self) -> int:
        """Pairs of rows; of one parcel and itself each unordered one is counted once, and a row with itself by half."""
        if self.piece is not None:
            return self.piece.rows.rows * self.piece.columns.rows
        return self.left.rows * self.right.rows // (2 if self.left is self.right else 1)

    def __str__(self) -> str:
        """Return the name that messages and records know it by: it says which rows, not where they lie."""
        return f"{self.left} with {self.right}" + (f": {self.piece}" if self.piece is not None else "")


@dataclass(slots=True)
class _Guest:
    """A visit that is being handed out."""

    visit: Visit
    waiting: deque[Meeting]
    inputs: tuple[Any, ...] | None = None
    unfinished: int = 0


@dataclass(slots=True)
class _Line:
    """What one instance has to do."""

    limit: int
    visits: deque[Visit]
    guests: list[_Guest] = field(default_factory=list)
    unfinished: int = 0


class Feed(Iterator[Any]):
    """The meetings, as ``map_blocks`` asks for them; whoever consumes them says which are ``finished``."""

    def __init__(
        self,
        visits: Mapping[str, Sequence[Visit]],
        slots: Mapping[str, int],
        send: Callable[[Parcel], Any],
        *,
        found: Callable[[Meeting], bool] = lambda meeting: False,
        skip: Callable[[Meeting], bool] = lambda meeting: False,
        tell: Callable[[Meeting], Any] = lambda meeting: None,
    ) -> None:
        """Begin with the whole schedule.

        Args:
            visits: Of each instance, in order.
            slots: Tasks that each instance runs at once.
            send: Begins to bring a parcel's rows under way; returns the object of Ray that they become.
            found: Whether a meeting's result is recorded: it is handed out, but its rows need not travel.
            skip: Whether a meeting need not be handed out.
            tell: Called when a meeting is handed out; returns its ``told``.
        """
        self._lines = {host: _Line(2 * slots[host], deque(there)) for host, there in visits.items() if there}
        self._order = deque(self._lines)
        self._send, self._found, self._skip, self._tell = send, found, skip, tell
        self._met: dict[str, _Guest] = {}
        self._away: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """Rows that each instance has sent."""
        self.received: Counter[str] = Counter()
        """Rows that each instance has been sent."""

    @property
    def in_flight(self) -> int:
        """Most unfinished meetings at a time."""
        return sum(line.limit for line in self._lines.values())

    def __next__(self) -> Any:
        """Return a meeting, or ``LATER``."""
        for _ in range(len(self._order)):
            self._order.rotate(-1)
            host = self._order[0]
            meeting = self._next_of(host, self._lines[host])
            if meeting is not None:
                return meeting
        if any(line.guests for line in self._lines.values()):
            return LATER
        raise StopIteration

    def finished(self, meeting: Meeting, again: Sequence[TileBlock] = ()) -> None:
        """Say that a meeting has its result, or that it has to be held ``again`` in these pieces."""
        line, guest = self._lines[meeting.host], self._met.pop(str(meeting))
        line.unfinished -= 1
        guest.unfinished -= 1
        guest.waiting.extendleft(Meeting(meeting.host, meeting.left, meeting.right, piece) for piece in again)
        if not guest.waiting and not guest.unfinished:
            # Its rows are dropped here, and where they came from.
            line.guests.remove(guest)
            self._away[guest.visit.parcel.host] -= bool(guest.inputs)

    def _next_of(self, host: str, line: _Line) -> Meeting | None:
        if line.unfinished >= line.limit:
            return None
        guest = next((guest for guest in line.guests if guest.waiting), None)
        while guest is None:
            if not line.visits:
                return None
            visit = line.visits.popleft()
            waiting = deque(meeting for meeting in meetings(visit) if not self._skip(meeting))
            if waiting:
                guest = _Guest(visit, waiting)
                line.guests.append(guest)
        meeting = guest.waiting[0]
        if not self._found(meeting) and not self._bring(line, guest):
            return None
        guest.waiting.popleft()
        guest.unfinished += 1
        line.unfinished += 1
        self._met[str(meeting)] = guest
        told = self._tell(meeting)
        return Meeting(host, meeting.left, meeting.right, meeting.piece, guest.inputs or (), told)

    def _bring(self, line: _Line, guest: _Guest) -> bool:
        """Bring a visitor's rows under way, unless they are, or too many others are."""
        if guest.inputs is not None:
            return True
        parcel = guest.visit.parcel
        if guest.visit.at_home:
            guest.inputs = ()
            return True
        if sum(bool(other.inputs) for other in line.guests) >= WINDOW or self._away[parcel.host] >= LEAVING:
            return False
        guest.inputs = (self._send(parcel),)
        self._away[parcel.host] += 1
        self.sent[parcel.host] += parcel.rows
        self.received[guest.visit.host] += parcel.rows
        return True


def meetings(visit: Visit) -> Iterator[Meeting]:
    """Yield the meetings of a visit; the tasks expect rows and columns in the order in line."""
    for own in visit.meets:
        left, right = sorted((visit.parcel, own), key=lambda parcel: (natural(parcel.host), parcel.start))
        yield Meeting(visit.host, left, right)
