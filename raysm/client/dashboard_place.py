"""Where the dashboard of a job answers: an event of its log flows in, an instance and a port flow out. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from raysm.contract.events import Event, State

__all__ = ["Place", "last_place", "place_told"]

ANSWERS = "dashboard"
"""The state in which it answers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a dashboard is."""

    host: str
    """The instance, ``algo-1``."""
    port: int
    """There, on its loopback too."""
    address: str
    """As the instance's network knows it, ``10.0.0.7:8265``."""


def place_told(event: Event) -> Place | None:
    """Return the place that an event tells; None where it tells none."""
    match event:
        case State(name=name, address=str(url), host=host) if name == ANSWERS:
            parts = urlsplit(url)
            return None if parts.port is None else Place(host=host, port=parts.port, address=parts.netloc)
    return None


def last_place(events: Iterable[Event]) -> Place | None:
    """Return the last place that is told: a follow-up job's, where one goes on."""
    places = [place for place in map(place_told, events) if place is not None]
    return places[-1] if places else None
