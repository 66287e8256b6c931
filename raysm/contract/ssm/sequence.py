"""Makes of a channel that loses, doubles and reorders messages one that does not: a state machine without a clock.

What flows in are payloads to send, messages that came, and the time; what flows out are messages to send and payloads
in their order. Each end keeps what it sent until it is acknowledged, and sends again what is not in time.
"""

from dataclasses import dataclass

from raysm.contract.ssm.frames import ACKNOWLEDGE, SYN, Frame, acknowledgement, encode

__all__ = ["Sequence"]

LEAST_TIMEOUT_S = 0.2
MOST_TIMEOUT_S = 1.0
"""Between these an end of AWS's waits for an acknowledgement; they are what it begins with, and its most."""
ROUND_TRIP_S = 0.1
"""What a round trip takes, as long as none was measured."""
GIVE_UP_S = 300.0
"""Both of AWS's ends end a session of which the oldest message was not acknowledged for so long."""
STILL_HERE_S = 60.0
"""Whoever the messages are for may read nothing for an hour, as a pager does before which somebody thinks. Then one is
acknowledged so often all the same: the other end would take the silence for our death."""
WINDOW = 512
"""How far a message may be ahead of the oldest that is not acknowledged: half a megabyte, for 0.2 s of a fast line.
AWS's agent forgets those above 10,000."""
AHEAD = 10_000
"""Messages kept that came before one that is still missing."""
RESENT = 64
"""Sent again at a time: a peer that is only slow would drown in them."""


@dataclass(slots=True)
class _Sent:
    data: bytes
    first_s: float
    last_s: float
    due_s: float
    tries: int = 0


class Sequence:
    """One end of a data channel; outlives the connections that carry it.

    Attributes:
        round_trip_s: How long an acknowledgement takes, smoothed.
    """

    def __init__(self, *, sends: str, window: int = WINDOW) -> None:
        """Begin with nothing sent.

        Args:
            sends: The type of the messages that this end sends, ``input_stream_data``.
            window: How far a message may be ahead of the oldest one that waits for its acknowledgement.
        """
        self._type = sends
        self._window = window
        self._next = 0
        self._sent: dict[int, _Sent] = {}
        self._expected = 0
        self._missing = 0
        # By number: they come in any order, and twice where an acknowledgement was lost.
        self._come: dict[int, Frame] = {}
        self._owed: dict[int, Frame] = {}
        self._answered_s = self._heard_s = 0.0
        self._variation_s = 0.0
        self.round_trip_s = ROUND_TRIP_S

    @property
    def has_room(self) -> bool:
        """Whether another message may be sent."""
        # Counted from the oldest, not by their number: what comes out of turn is acknowledged at once, so a sender that
        # counts would run thousands of messages ahead of one that a cut connection lost, and drown the other end.
        return self._next - next(iter(self._sent), self._next) < self._window

    @property
    def held(self) -> int:
        """How many messages have come whose turn it is, and were not taken yet."""
        # Not those that wait for one that is missing: whoever stops reading because of them never reads that one.
        return self._missing - self._expected

    @property
    def is_acknowledged(self) -> bool:
        """Whether the other end has all that was sent."""
        return not self._sent

    def send(self, payload_type: int, payload: bytes, now_s: float) -> bytes:
        """Return the next message."""
        frame = Frame(
            type=self._type,
            sequence=self._next,
            payload_type=payload_type,
            payload=payload,
            flags=SYN if self._next == 0 else 0,
        )
        data = encode(frame)
        self._sent[self._next] = _Sent(data, now_s, now_s, now_s + self._timeout_s())
        self._next += 1
        return data

    def receive(self, frame: Frame) -> bytes | None:
        """Take a stream message of the other end; return the acknowledgement to send at once, if any.

        Of a message whose turn it is, that is sent once it is ``delivered``: a peer that has as many on their way as it
        may, is held up by whoever does not read here.
        """
        if frame.sequence > self._expected + AHEAD:
            return None  # no room: it comes again
        if frame.sequence >= self._missing:
            self._come[frame.sequence] = frame
        if frame.sequence == self._missing:
            self._owed[frame.sequence] = frame
            while self._missing in self._come:
                self._missing += 1
        # Of one that came before, too: its acknowledgement was lost, or it would not have come again.
        return None if frame.sequence in self._owed else acknowledgement(frame)

    def take(self) -> Frame | None:
        """Return the next message whose turn it is; None as long as it has not come."""
        frame = self._come.pop(self._expected, None)
        if frame is not None:
            self._expected += 1
        return frame

    def delivered(self, frame: Frame) -> bytes | None:
        """Whoever the message is for has it; return the acknowledgement to send, if any."""
        return None if self._owed.pop(frame.sequence, None) is None else acknowledgement(frame)

    def still_here(self, now_s: float) -> bytes | None:
        """Return an acknowledgement that tells the other end no more than that this one lives; None if none is due."""
        if not self._owed:
            self._answered_s = now_s
        if now_s - self._answered_s < STILL_HERE_S:
            return None
        self._answered_s = now_s
        return acknowledgement(self._owed.pop(min(self._owed)))

    def acknowledged(self, frame: Frame, now_s: float) -> None:
        """Take an acknowledgement of the other end.

        Raises:
            ValueError: It is none.
        """
        if frame.type != ACKNOWLEDGE:
            raise ValueError(f"no acknowledgement: {frame.type!r}")
        self._heard_s = now_s
        message = self._sent.pop(int(frame.document()["AcknowledgedMessageSequenceNumber"]), None)
        # Of what was sent twice nobody knows which one is acknowledged.
        if message is not None and message.tries == 0:
            self._measure(now_s - message.last_s)

    def _measure(self, round_trip_s: float) -> None:
        # RFC 6298's shares, which both of AWS's ends have as well.
        self._variation_s += (abs(self.round_trip_s - round_trip_s) - self._variation_s) / 4
        self.round_trip_s += (round_trip_s - self.round_trip_s) / 8

    def _timeout_s(self, tries: int = 0) -> float:
        expected_s = self.round_trip_s + max(0.01, 4 * self._variation_s)
        return min(MOST_TIMEOUT_S, max(LEAST_TIMEOUT_S, expected_s) * (1 << tries))

    def due(self, now_s: float) -> list[bytes]:
        """Return the messages to send again now, the oldest first.

        Raises:
            TimeoutError: One of them was not acknowledged for minutes.
        """
        late = [message for message in self._sent.values() if message.due_s <= now_s][:RESENT]
        for message in late:
            if now_s - max(message.first_s, self._heard_s) > GIVE_UP_S:
                raise TimeoutError(f"a message was not acknowledged within {GIVE_UP_S:.0f} s")
            message.tries = min(message.tries + 1, 10)
            message.last_s, message.due_s = now_s, now_s + self._timeout_s(message.tries)
        return [message.data for message in late]

    def resume(self, now_s: float) -> list[bytes]:
        """A new connection carries it: return all that is not acknowledged, which may be lost, the oldest first.

        All of it at once: nothing is on its way by a new connection, so a window's worth drowns nobody; a part at a
        time took 0.8 s of each connection.
        """
        for message in self._sent.values():
            # The time without a connection is nobody's silence.
            message.first_s = message.last_s = now_s
            message.tries = max(message.tries, 1)
            message.due_s = now_s + self._timeout_s(message.tries)
        return [message.data for message in self._sent.values()]

    def next_due_s(self) -> float | None:
        """Return when something is to be sent again; None where all is acknowledged."""
        return min((message.due_s for message in self._sent.values()), default=None)
