"""What AWS does to jobs, and a laptop does not: the switches of the embedded SageMaker, read from a TOML file.

What flows in is the text of a file, what flows out is one frozen value. Every default is what AWS does in any case, as
far as this machine can play it; what AWS does now and then, or to some accounts, has to be switched on.
"""

import random
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from raysm.errors import InvalidRequest
from raysm.request.codec import from_json

__all__ = ["Api", "Capacity", "Checkpoints", "Container", "Logs", "Network", "Outputs", "Scenario", "parse", "read"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """What the container of an instance is like."""

    hostname: str = "aws"
    """The host name of every instance: ``aws`` in real jobs (sagemaker-training-toolkit, issue 9)."""
    init: bool = True
    """Whether PID 1 is a small init, which forwards signals to the job's own process and reaps orphans: ``df`` in real
    jobs shows ``/usr/sbin/docker-init`` (awslabs/graphstorm, issue 949)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """How instances reach each other, and the world."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """What becomes of ``/opt/ml/model`` and the other outputs."""

    last_writer: Literal["head", "random"] = "head"
    """Whose file stays where several instances left one of the same name: the head's, or, as on AWS, that of whichever
    instance is uploaded last (developer guide, "Amazon SageMaker AI Training Storage Folders": containers have to take
    care that names do not clash)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """How ``/opt/ml/checkpoints`` reaches S3."""

    sync_s: float = 2.0
    """Seconds from one look at the folder to the next; what changed in between is uploaded then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Logs:
    """What CloudWatch shows of a job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """How requests are answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """How instances come, and go."""

    absent: tuple[str, ...] = ()
    """Hosts that are announced to the others, and never come: ``["algo-2"]``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """All switches, a table each in the file."""

    container: Container = field(default_factory=Container)
    """What the container of an instance is like."""
    network: Network = field(default_factory=Network)
    """How instances reach each other, and the world."""
    outputs: Outputs = field(default_factory=Outputs)
    """What becomes of the folders that are uploaded at the end."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    """How checkpoints reach S3."""
    logs: Logs = field(default_factory=Logs)
    """What CloudWatch shows."""
    api: Api = field(default_factory=Api)
    """How requests are answered."""
    capacity: Capacity = field(default_factory=Capacity)
    """How instances come, and go."""
    seed: int | None = None
    """What chance is drawn from; None is another chance each time."""

    def chance(self) -> random.Random:
        """Return what decides whatever is left to chance."""
        return random.Random(self.seed)

    def switched(self) -> Iterator[tuple[str, Any]]:
        """Yield the switches that stand otherwise than by default, ``container.read_only``, with their values."""
        for table in fields(self):
            value, default = getattr(self, table.name), getattr(Scenario(), table.name)
            if table.name == "seed":
                continue
            for switch in fields(value):
                chosen = getattr(value, switch.name)
                if chosen != getattr(default, switch.name):
                    yield f"{table.name}.{switch.name}", chosen


def parse(text: str, where: str = "scenario") -> Scenario:
    """Return the scenario that ``text`` describes.

    Args:
        text: TOML; what it does not say is as by default.
        where: What messages begin with.

    Raises:
        InvalidRequest: It is no TOML, or a table or switch is unknown, or a value is of another type.
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{where}: {error}") from None
    return from_json(Scenario, data, where)


def read(path: Path) -> Scenario:
    """Return the scenario of a file; where there is no such file, the one in which nothing is switched on.

    Raises:
        InvalidRequest: It cannot be read, or says what there is not.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return Scenario()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the scenario {path} cannot be read: {error}") from None
