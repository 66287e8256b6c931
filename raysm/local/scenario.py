"""Scenarios: what AWS does to jobs and a laptop does not, read from a TOML file.

The defaults are what AWS always does, as far as this machine can emulate it. What AWS does sometimes, or to some
accounts, is switched on by the file.
"""

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
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
    "Market",
    "Network",
    "Outputs",
    "Scenario",
    "Simulated",
    "Ssm",
    "parse",
    "read",
    "spread_by",
]


def check_shares(table: str, **shares: float) -> None:
    """Refuse a share that is not between 0 and 1.

    Raises:
        InvalidRequest: One is not; a percentage would otherwise mean "always".
    """
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise InvalidRequest(f"the scenario's {table}.{name} is a share from 0 to 1, got {share}")


def spread_by(share: float, seconds: float, chance: random.Random) -> float:
    """Return ``seconds`` changed at random by at most ``share`` of it, up or down."""
    return seconds * (1 + share * (2 * chance.random() - 1)) if share else seconds


BY_REGION = ("api", "capacity", "market", "simulated")
"""Tables that a region may have of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """What the container of an instance is like."""

    hostname: str = "aws"
    """The host name of every instance: ``aws`` in real jobs (sagemaker-training-toolkit, issue 9). In each instance it
    resolves to the instance's own address."""
    init: bool = True
    """Whether PID 1 is a small init, which forwards signals to the job's own process and reaps orphans: ``df`` in real
    jobs shows ``/usr/sbin/docker-init`` (awslabs/graphstorm, issue 949)."""
    root_mb: int = 0
    """Room, in MB, of what of ``/opt/ml`` is no documented folder: on AWS it lies on the small disk of ``/``, while the
    volume that was asked for holds the documented folders and ``/tmp`` (developer guide, "Amazon SageMaker AI Training
    Storage Folders"; 120 GB beside 1 TB in awslabs/graphstorm, issue 949). 0 is all the room of this machine's disk."""
    read_only: bool = False
    """Whether ``/`` can only be read; the documented folders, ``/tmp`` and ``/dev/shm`` can be written."""
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
    """Whether the names of the package index resolve and connections to the outside get no answer, as in a VPC without
    NAT. By default names do not resolve and the gateway refuses connections at once."""


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

    rates: Mapping[str, float] = field(default_factory=dict)
    """Requests a second that are answered, by operation, ``{ListTrainingJobs = 2.0}``; more are refused. AWS has such a
    limit for each account and region; that of ListTrainingJobs is 2 a second, and cannot be raised
    (deepracer-on-aws, issue 87)."""

    def __post_init__(self) -> None:
        """Check shares and rates."""
        for operation, rate in self.rates.items():
            if rate <= 0:
                raise InvalidRequest(f"the scenario's api.rates.{operation} is above 0 requests a second, got {rate:g}")
        check_shares("api", throttled=self.throttled, unavailable=self.unavailable, answers_lost=self.answers_lost)


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
    start_spread: float = 0.0
    """The share by which ``start_delay_s`` differs from job to job, either way, 0 to 1."""
    instances: Mapping[str, int] = field(default_factory=dict)
    """Instances that there are for all jobs together, by type, ``{"ml.p4d.24xlarge" = 40}``; of the types that are not
    named there is any number."""
    interruptions_per_hour: float = 0.0
    """How often, on average, a job on spot capacity is interrupted in an hour of running."""
    interrupted_at: tuple[str, ...] = ()
    """Words at which a job on spot capacity loses its instances: the first one that writes a line with them, once for
    each of the words, however fast this machine is. What it does behind that line is lost. Not of simulated jobs, which
    write nothing."""

    def __post_init__(self) -> None:
        """Check shares and numbers."""
        if not all(self.interrupted_at):
            raise InvalidRequest("the scenario's capacity.interrupted_at are words of a line; empty ones are in each")
        check_shares("capacity", start_spread=self.start_spread)
        if self.interruptions_per_hour < 0:
            raise InvalidRequest(
                f"the scenario's capacity.interruptions_per_hour is 0 or more, got {self.interruptions_per_hour:g}"
            )
        check_shares("capacity", insufficient=self.insufficient, internal_errors=self.internal_errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class Market:
    """What instances cost, and how many the account may have: what GetProducts and Service Quotas answer."""

    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    """Price of an instance on demand, by type; the others have none that is known."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Instances that all jobs of an API on demand may have together, by type; the others have no limit."""
    spot_quotas: Mapping[str, int] = field(default_factory=dict)
    """The same on spot capacity: AWS counts each market by itself."""
    spot_saving: float = 0.0
    """The share of its time for which a job on spot capacity is not billed, 0 to 1: AWS says up to 0.9, and by how much
    only when the job has ended, as BillableTimeInSeconds beside TrainingTimeInSeconds."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_shares("market", spot_saving=self.spot_saving)
        for table in ("usd_per_hour", "quotas", "spot_quotas"):
            for name, number in getattr(self, table).items():
                if number < 0:
                    raise InvalidRequest(f"the scenario's market.{table}.{name} is 0 or more, got {number:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated:
    """What becomes of jobs whose instances are ``simulated``: nothing of theirs runs.

    A job's own hyperparameters ``simulated_run_s`` and ``simulated_failure`` win over these.
    """

    run_s: float = 600.0
    """Seconds that a job runs."""
    spread: float = 0.0
    """The share by which the seconds differ from job to job, either way, 0 to 1."""
    failed: float = 0.0
    """The share of jobs that fail, 0 to 1."""
    failure: str = "AlgorithmError: ValueError: simulated, exit code: 1"
    """Why."""

    def __post_init__(self) -> None:
        """Check the shares."""
        check_shares("simulated", spread=self.spread, failed=self.failed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ssm:
    """Entering the instances of a job."""

    permitted: bool = True
    """Whether the job's role lets its agent connect. Most roles do not: AmazonSageMakerFullAccess lacks the four
    permissions of ssmmessages. Then no instance can be entered, and the agent complains in its log stream."""


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
    """Whether instances can be entered."""
    market: Market = field(default_factory=Market)
    """What instances cost, and how many there may be."""
    simulated: Simulated = field(default_factory=Simulated)
    """What becomes of jobs that are not really run."""
    regions: "Mapping[str, Scenario]" = field(default_factory=dict)
    """What is otherwise in one region, by its name: ``[regions.eu-west-1.capacity]``."""
    speed: float = 1.0
    """How many seconds of the server's clock pass in one: 60 is an hour a minute. Jobs that really run have no other
    time than this machine's, so that all others than simulated ones are refused then."""
    seed: int | None = None
    """What chance is drawn from; None is another chance each time."""

    def of(self, region: str) -> "Scenario":
        """Return what one region plays."""
        return self.regions.get(region, self)

    def chance(self, name: str = "") -> random.Random:
        """Return the generator of whatever is left to chance, for the server or for one job by its name."""
        # By name, so that a seed repeats a job in whatever order the requests arrive.
        return random.Random(None if self.seed is None else f"{self.seed}/{name}")

    def switched(self) -> Iterator[tuple[str, Any]]:
        """Yield the switches that stand otherwise than by default, ``container.read_only``, with their values."""
        for table in fields(self):
            value, default = getattr(self, table.name), getattr(Scenario(), table.name)
            # The others switch nothing on: which chance is drawn, how fast the time passes.
            if not is_dataclass(value):
                continue
            for switch in fields(value):
                chosen = getattr(value, switch.name)
                if chosen != getattr(default, switch.name):
                    yield f"{table.name}.{switch.name}", chosen
        for region, of_region in self.regions.items():
            yield from ((f"regions.{region}.{name}", chosen) for name, chosen in of_region.switched())


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
    regions = data.pop("regions", {})
    scenario = from_json(Scenario, data, where)
    if not isinstance(regions, dict):
        raise InvalidRequest(f"{where}: regions is a table of regions, got {regions!r}")
    read_regions = {name: _of_region(data, tables, f"{where}: regions.{name}") for name, tables in regions.items()}
    return replace(scenario, regions=read_regions)


def _of_region(common: Mapping[str, Any], of_region: Any, where: str) -> Scenario:
    if not isinstance(of_region, dict) or set(of_region) - set(BY_REGION):
        # The others are of the server as a whole, or of a machine that plays instances: they would be passed over.
        raise InvalidRequest(f"{where}: a region has the tables {', '.join(BY_REGION)}, got {of_region!r}")
    # Key by key: what a region does not say is as everywhere.
    tables = {name: {**common.get(name, {}), **table} for name, table in of_region.items() if isinstance(table, dict)}
    return from_json(Scenario, {**common, **of_region, **tables}, where)


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
