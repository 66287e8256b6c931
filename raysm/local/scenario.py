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

__all__ = [
    "Api",
    "Capacity",
    "Checkpoints",
    "Container",
    "Logs",
    "Network",
    "Outputs",
    "Scenario",
    "Ssm",
    "parse",
    "read",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """What the container of an instance is like."""

    # A name that resolves would hide programs that look up their own, which fails on AWS.
    hostname: str = "aws"
    """The host name of every instance: ``aws`` in real jobs (sagemaker-training-toolkit, issue 9)."""
    init: bool = True
    """Whether PID 1 is a small init, which forwards signals to the job's own process and reaps orphans: ``df`` in real
    jobs shows ``/usr/sbin/docker-init`` (awslabs/graphstorm, issue 949)."""
    root_mb: int = 0
    """Room, in MB, of what of ``/opt/ml`` is no documented folder: on AWS it lies on the small disk of ``/``, while the
    volume that was asked for holds the documented folders and ``/tmp`` (developer guide, "Amazon SageMaker AI Training
    Storage Folders"; 120 GB beside 1 TB in awslabs/graphstorm, issue 949). 0 is all the room of this machine's disk."""
    read_only: bool = False
    """Whether ``/`` can only be read; the documented folders, ``/tmp`` and ``/dev/shm`` can be written."""
    shared_mappings: bool = True
    """Whether several processes can map a file of a Training job's channels together (``mmap`` with MAP_SHARED). Of
    FastFile's nobody says it: a file system in user space may refuse it (numpy issue 9894, safetensors issue 545).
    Where they cannot, the channels can only be read."""
    user: int = 0
    """Number of the user that the job runs as, 0 is root. Another one can write the documented folders, ``/tmp`` and
    ``/dev/shm`` alone, and has no home: an image's ``USER``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """How instances reach each other, and the world."""

    names_resolve_after_s: float = 0.0
    """Seconds after the start for which the names of the instances do not resolve ("it may take some time", developer
    guide, "Distributed training configuration")."""
    own_name_is_loopback: bool = False
    """Whether an instance's own name, ``algo-1``, resolves to 127.0.0.1 in it, as some images' ``/etc/hosts`` have
    it."""
    silent_internet: bool = False
    """Whether the names of the package index resolve, and nobody ever answers there, as in a VPC without NAT; else
    there is no way out at all, and it is known at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """What becomes of ``/opt/ml/model`` and the other outputs."""

    # Not the head: an order that AWS does not promise would hide jobs whose instances write under one name.
    last_writer: Literal["head", "random"] = "random"
    """Whose file stays where several instances left one of the same name: as on AWS that of whichever instance is
    uploaded last, or the head's (developer guide, "Amazon SageMaker AI Training Storage Folders": containers have to
    take care that names do not clash)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """How ``/opt/ml/checkpoints`` reaches S3."""

    sync_s: float = 2.0
    """Seconds from one look at the folder to the next; what changed in between is uploaded then."""
    cut_at_sigkill: bool = True
    """Whether what an instance wrote after the last look is lost when it is killed. AWS does not say whether it goes on
    uploading then; a job must not count on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Logs:
    """What CloudWatch shows of a job."""

    ssm_streams: bool = False
    """Whether every instance has a second stream, ``algo-1-EPOCH/ssm``, in which the agent of remote debugging
    complains (developer guide, "Access a training container through AWS Systems Manager for remote debugging"). A job
    that asks for remote debugging has it in any case."""
    late_s: float = 0.0
    """Seconds by which lines may come late, those of each instance by another time: so lines come out of the order of
    their times, and the last of them after the job's end has been told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """How requests are answered."""

    throttled: float = 0.0
    """The share of requests that are refused because there are too many, 0 to 1."""
    unavailable: float = 0.0
    """The share of requests that are answered with a 5xx, and not carried out, 0 to 1."""
    answers_lost: float = 0.0
    """The share of requests that are carried out, and whose connection then closes without an answer, 0 to 1."""
    denied: tuple[str, ...] = ()
    """Actions of SageMaker, CloudWatch Logs, IAM, STS and Systems Manager that the user's policy does not allow,
    ``iam:GetRole``; and the condition key ``sagemaker:EnableRemoteDebug``, by which accounts refuse jobs that can be
    looked into (developer guide, "Access a training container through AWS Systems Manager for remote debugging")."""

    def __post_init__(self) -> None:
        """Check the shares."""
        _check_shares("api", throttled=self.throttled, unavailable=self.unavailable, answers_lost=self.answers_lost)


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """How instances come, and go."""

    absent: tuple[str, ...] = ()
    """Hosts that are announced to the others, and never come: ``["algo-2"]``."""
    start_delay_s: float = 0.0
    """Seconds from the moment at which a job gets its instances to the one at which they begin: on AWS, minutes."""
    insufficient: float = 0.0
    """The share of jobs that fail with AWS's ``CapacityError`` instead of starting, 0 to 1."""
    internal_errors: float = 0.0
    """The share of attempts that the service breaks off with an ``InternalServerError``, 0 to 1; a job's RetryStrategy
    says how often it is started again."""
    internal_error_after_s: float = 1.0
    """Seconds after the start of its instances at which an attempt is broken off."""

    def __post_init__(self) -> None:
        """Check the shares."""
        _check_shares("capacity", insufficient=self.insufficient, internal_errors=self.internal_errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ssm:
    """How Systems Manager carries sessions into instances."""

    close_every_s: float = 0.0
    """Seconds after which the service closes a data channel's WebSocket: on AWS about an hour. 0 is never."""
    lost: float = 0.0
    """The share of messages that get lost on their way, in either direction, 0 to 1."""
    doubled: float = 0.0
    """The share of messages that arrive twice, 0 to 1."""
    multiplexing: bool = True
    """Whether the agent carries many connections in one session; agents up to 3.0.196.0 do not."""
    permitted: bool = True
    """Whether the job's role lets its agent connect. Most roles do not: AmazonSageMakerFullAccess lacks the four
    permissions of ssmmessages, and then nobody is let in, and the agent complains in its log stream."""
    idle_s: float = 1200.0
    """Seconds without anything from the user after which a session ends: 20 minutes, where the account's preferences
    say nothing else (https://docs.aws.amazon.com/systems-manager/latest/userguide/session-preferences-timeout.html)."""

    def __post_init__(self) -> None:
        """Check the shares."""
        _check_shares("ssm", lost=self.lost, doubled=self.doubled)


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
    ssm: Ssm = field(default_factory=Ssm)
    """How sessions into instances are carried."""
    seed: int | None = None
    """What chance is drawn from; None is another chance each time."""

    def chance(self) -> random.Random:
        """Return what decides whatever is left to chance."""
        return random.Random(self.seed)

    def switched(self) -> Iterator[tuple[str, Any]]:
        """Yield the switches that stand otherwise than by default, ``container.read_only``, with their values."""
        for table in fields(self):
            value, default = getattr(self, table.name), getattr(Scenario(), table.name)
            # It switches nothing on: it says only which chance is drawn.
            if table.name == "seed":
                continue
            for switch in fields(value):
                chosen = getattr(value, switch.name)
                if chosen != getattr(default, switch.name):
                    yield f"{table.name}.{switch.name}", chosen


def _check_shares(table: str, **shares: float) -> None:
    for name, share in shares.items():
        # A percentage would pass for always: no draw is above 1.
        if not 0 <= share <= 1:
            raise InvalidRequest(f"the scenario's {table}.{name} is a share from 0 to 1, got {share}")


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
    # Without the parser's own frames: its message says line and column.
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
    # Not as if it were absent: whoever wrote one counts on what it switches.
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the scenario {path} cannot be read: {error}") from None
