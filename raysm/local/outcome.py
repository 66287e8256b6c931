"""How a job ended, by the exits of its instances."""

import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from raysm.contract.paths import Paths
from raysm.contract.result import SERVICE_REASON
from raysm.local.job_spec import JobSpec

__all__ = ["Exits", "Outcome"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How a job ended."""

    status: Literal["Completed", "Failed", "Stopped"]
    """As the service says it."""
    failure_reason: str | None
    """Of a Failed job: what the head left in its failure file, else what is known of the instance that failed first."""
    exit_code: int
    """Of the instance that failed first; 0 where none did."""
    exit_codes: Mapping[str, int]
    """By host; 128 + signal where the main process was killed."""
    started_s: float
    """When all instances had been started, in seconds since the epoch."""
    ended_s: float
    """When the last of them was gone."""
    exited_s: Mapping[str, float] = field(default_factory=dict)
    """When each was gone, by host."""


@dataclass(kw_only=True, slots=True)
class Exits:
    """The instances that have ended so far."""

    spec: JobSpec
    """The job."""
    codes: dict[str, int] = field(default_factory=dict)
    """By host, in the order in which they were seen to end."""
    at_s: dict[str, float] = field(default_factory=dict)
    """When each was gone, by host, in seconds since the epoch."""

    def add(self, host: str, code: int, at_s: float) -> None:
        """Take note of an end."""
        self.codes[host], self.at_s[host] = code, at_s

    def failed(self) -> list[str]:
        """Return the hosts whose exits fail the job, in their order: who failed first is the cause."""
        return sorted((host for host, code in self.codes.items() if self._counts(host, code)), key=self._at)

    def _at(self, host: str) -> float:
        return self.at_s[host]

    def _counts(self, host: str, code: int) -> bool:
        # The loss of an instance other than the head may be allowed.
        return code != 0 and (host == self.spec.first or not self.spec.losses_allowed)

    def outcome(self, paths: Callable[[str], Paths], *, stopped: bool, started_s: float, ended_s: float) -> Outcome:
        """Return how the job ended, once all have.

        Args:
            paths: Where the files of a host lie.
            stopped: Whether the service had asked it to end.
            started_s: When all instances had been started.
            ended_s: Now.
        """
        # The SIGTERM of a stop makes exits that are no failures.
        failed = [] if stopped else self.failed()
        return Outcome(
            status="Stopped" if stopped else "Failed" if failed else "Completed",
            failure_reason=self._reason(failed, paths) if failed else None,
            exit_code=self.codes[failed[0]] if failed else 0,
            exit_codes=dict(self.codes),
            started_s=started_s,
            ended_s=ended_s,
            exited_s=dict(self.at_s),
        )

    def _reason(self, failed: list[str], paths: Callable[[str], Paths]) -> str:
        """Return the head's words, else those of the first instance that has any, else its exit code."""
        # The head's words first: it knows of the others' losses, and each of the others of its own alone.
        for host in dict.fromkeys([self.spec.first, *failed]):
            with contextlib.suppress(OSError):
                # A program writes the file, in whatever encoding, and SageMaker takes its first 1024 characters.
                text = paths(host).failure.read_text(encoding="utf-8", errors="replace")[:SERVICE_REASON].strip()
                if text:
                    return text if host == self.spec.first else f"{host}: {text}"[:SERVICE_REASON]
        return f"{failed[0]}: {_describe(self.codes[failed[0]])}"


def _describe(code: int) -> str:
    if code == 128 + signal.SIGTERM:
        # It came first, so it was not this service that told it to end: a stop, and the end of the others, come later.
        return "ended because somebody sent it SIGTERM; the service had not asked it to stop"
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(code - 128).name}"
    return f"exit code {code}"
