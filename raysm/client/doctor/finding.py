"""What a check says: good, bad with the remedy, or that it could not look.

What flows in is a check and the case that it looks at; what flows out are its findings. A check never takes a refusal
to be looked at for a defect: many users may run a job, and may not ask IAM or Service Quotas about it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from raysm.client.doctor.case import Case
from raysm.errors import InvalidRequest, MissingDependency, ServiceError

__all__ = ["Check", "Finding", "State", "bad", "carry_out", "good", "one_suffices", "unknown"]

DENIALS = ("AccessDenied", "UnauthorizedOperation", "AuthorizationError", "Forbidden", "403")
"""How the codes of errors begin by which the services say that the caller may not ask this."""


MOST_TEXT = 300
"""Characters of an error that are shown."""


class State(StrEnum):
    """What is known of one thing."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"
    """It could not be looked at."""


GRAVITY = (State.GOOD, State.UNKNOWN, State.BAD)
"""From what may be to what may not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What is known of one thing."""

    name: str = ""
    """What was looked at."""
    state: State
    """Whether it will do."""
    text: str
    """What was seen."""
    remedy: str = ""
    """What to do: a command, a policy, or a sentence; empty where nothing need be done."""
    needed: bool = True
    """Whether jobs cannot run without it."""

    @property
    def word(self) -> str:
        """Say the state in a word."""
        if self.state is State.BAD and not self.needed:
            return "none"
        return {State.GOOD: "ok", State.BAD: "BAD", State.UNKNOWN: "?"}[self.state]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing to look at."""

    name: str
    """What people call it."""
    look: Callable[[Case], Iterator[Finding]]
    """Yields what it sees; nothing where the job has no such thing."""
    asks: bool = True
    """Whether it asks AWS: then it cannot look without credentials."""


def good(text: str) -> Finding:
    """Return that something will do."""
    return Finding(state=State.GOOD, text=text)


def bad(text: str, remedy: str, *, needed: bool = True) -> Finding:
    """Return that something will not do."""
    return Finding(state=State.BAD, text=text, remedy=remedy, needed=needed)


def unknown(text: str, remedy: str = "") -> Finding:
    """Return that something could not be looked at."""
    return Finding(state=State.UNKNOWN, text=text, remedy=remedy)


def one_suffices(ways: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Yield what is found of several ways to one end: what is worse than the best of them stands in nobody's way."""
    best = min((_worst(findings) for findings in ways), default=0)
    for findings in ways:
        is_needed = _worst(findings) <= best
        yield from (replace(finding, needed=finding.needed and is_needed) for finding in findings)


def _worst(findings: Sequence[Finding]) -> int:
    return max((GRAVITY.index(finding.state) for finding in findings), default=0)


def carry_out(check: Check, case: Case) -> Iterator[Finding]:
    """Yield what a check sees, under its name; what stops it is its last finding."""
    try:
        for finding in check.look(case):
            # One by one: what a check saw before it was stopped stays seen.
            yield replace(finding, name=check.name)
    except (InvalidRequest, MissingDependency) as error:  # their messages name the remedy
        text, _, remedy = str(error).partition("; ")
        yield replace(bad(text, remedy), name=check.name)
    except ServiceError as error:
        yield replace(unknown(*_obstacle(error)), name=check.name)


def _obstacle(error: ServiceError) -> tuple[str, str]:
    """Return why a check could not look, and what to do about that."""
    # Behind the semicolon stands the remedy for who wants to send a job; here only the looking is refused.
    text, _, remedy = " ".join(str(error).split()).partition("; ")
    # Where a proxy answered, a whole page stands in it.
    text = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
    if error.code.startswith(DENIALS):
        return f"could not look: {text}", "ask who may, or add the doctor's own permissions: raysm doctor --policy user"
    return f"could not look: {text}", remedy
