"""Scenarios: what AWS does to jobs and a laptop does not, read from a TOML file.

The defaults are what AWS always does, as far as this machine can emulate it. What AWS does
sometimes, or to some accounts, is switched on by the file.
"""

import random
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from raysm.core.request.codec import from_json
from raysm.errors import InvalidRequest


def check_shares(table: str, **shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise InvalidRequest(
                f"the scenario's {table}.{name} is a share from 0 to 1, got {share}"
            )


BY_REGION = ("api", "capacity", "market", "simulated")
"""Tables that a region may override."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """The container of an instance."""

    root_mb: int = 0
    """Size in MB of ``/opt/ml`` outside of its documented folders: on AWS it is on the small disk
    of ``/``, while the requested volume holds the documented folders and ``/tmp`` (developer guide,
    "Amazon SageMaker AI Training Storage Folders"; 120 GB beside 1 TB in awslabs/graphstorm, issue
    949). 0 does not limit it."""
    user: int = 0
    """Number of the user that the job runs as, like an image's ``USER``; 0 is root. Any other user
    can write only the documented folders, ``/tmp`` and ``/dev/shm``, and has no home."""
    noexec_tmp: bool = False
    """``/tmp`` is mounted noexec, as hardened hosts mount it: no program or compiled module loads
    from there."""
    leaves_out_empty: bool = False
    """Objects of zero bytes do not arrive in small channels. AWS does not document what happens to
    them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """The network of the instances."""

    names_resolve_after_s: float = 0.0
    """Seconds after the start until the names of the instances resolve ("it may take some time",
    developer guide, "Distributed training configuration")."""
    silent_internet: bool = False
    """The names of the package index resolve and connections to the outside get no answer, as in a
    VPC without NAT. By default names do not resolve and the gateway refuses connections at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """The upload of ``/opt/ml/checkpoints``."""

    sync_s: float = 2.0
    """Seconds from one look at the folder to the next; files that changed in between are uploaded.
    The files that an instance writes after the last look are lost if it is killed: AWS does not
    promise to upload them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Api:
    """The answers to requests."""

    throttled: float = 0.0
    """The share of requests that are throttled, 0 to 1."""
    unavailable: float = 0.0
    """The share of requests that fail with a 5xx and are not carried out, 0 to 1."""
    answers_lost: float = 0.0
    """The share of requests that are carried out but whose connection closes without an answer, 0
    to 1."""
    denied: tuple[str, ...] = ()
    """Actions of SageMaker, CloudWatch Logs, IAM, STS and Systems Manager that the user's policy
    does not allow, ``iam:GetRole``, and the condition key ``sagemaker:EnableRemoteDebug``, by which
    accounts forbid remote debugging (developer guide, "Access a training container through AWS
    Systems Manager for remote debugging")."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Allowed requests a second by operation, ``{ListTrainingJobs = 2.0}``. AWS limits each account
    and region; the limit of ListTrainingJobs is 2 a second and cannot be raised (deepracer-on-aws,
    issue 87)."""

    def __post_init__(self) -> None:
        for operation, rate in self.rates.items():
            if rate <= 0:
                raise InvalidRequest(
                    f"the scenario's api.rates.{operation} is above 0 requests a second, got "
                    f"{rate:g}"
                )
        check_shares(
            "api",
            throttled=self.throttled,
            unavailable=self.unavailable,
            answers_lost=self.answers_lost,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """How instances start and are lost."""

    start_delay_s: float = 0.0
    """Seconds until the instances of a job start: minutes on AWS."""
    insufficient: float = 0.0
    """The share of jobs that fail with AWS's ``CapacityError`` instead of starting, 0 to 1."""
    internal_errors: float = 0.0
    """The share of attempts that the service ends with an ``InternalServerError``, 0 to 1; a job's
    RetryStrategy says how often it is started again."""
    instances: Mapping[str, int] = field(default_factory=dict)
    """Instances available to all jobs together, by type, ``{"ml.p4d.24xlarge" = 40}``; other types
    are unlimited."""
    interruptions_per_hour: float = 0.0
    """The mean number of interruptions of a job on spot capacity in an hour of running."""
    interrupted_at: tuple[str, ...] = ()
    """Texts of log lines. The first job on spot capacity that writes a line with such a text is
    interrupted, once for each text, and loses its work after that line. Simulated jobs write no
    lines."""

    def __post_init__(self) -> None:
        if not all(self.interrupted_at):
            raise InvalidRequest(
                "the scenario's capacity.interrupted_at has an empty text, which is in every line"
            )
        if self.interruptions_per_hour < 0:
            raise InvalidRequest(
                "the scenario's capacity.interruptions_per_hour is 0 or more, got "
                f"{self.interruptions_per_hour:g}"
            )
        check_shares(
            "capacity", insufficient=self.insufficient, internal_errors=self.internal_errors
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Market:
    """Prices and quotas, as GetProducts and Service Quotas answer them."""

    usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    """Price of an instance on demand, by type; other types have no known price."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """Instances that all jobs of an API may have together on demand, by type; other types are
    unlimited."""
    spot_quotas: Mapping[str, int] = field(default_factory=dict)
    """The same on spot capacity, which AWS counts separately."""
    spot_saving: float = 0.0
    """The share of a spot job's time that is not billed, 0 to 1: up to 0.9 on AWS, which reports it
    only after the end, as BillableTimeInSeconds and TrainingTimeInSeconds."""

    def __post_init__(self) -> None:
        check_shares("market", spot_saving=self.spot_saving)
        for table in ("usd_per_hour", "quotas", "spot_quotas"):
            for name, number in getattr(self, table).items():
                if number < 0:
                    raise InvalidRequest(
                        f"the scenario's market.{table}.{name} is 0 or more, got {number:g}"
                    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated:
    """How jobs with instances of kind ``simulated`` run and end."""

    run_s: float = 600.0
    """Seconds that a job runs."""
    failed: float = 0.0
    """The share of jobs that fail, 0 to 1."""
    failure: str = "AlgorithmError: ValueError: simulated, exit code: 1"
    """Their failure reason."""

    def __post_init__(self) -> None:
        check_shares("simulated", failed=self.failed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ssm:
    """Access to the instances of a job."""

    permitted: bool = True
    """The job's role lets its agent connect. Most roles do not: AmazonSageMakerFullAccess lacks the
    four permissions of ssmmessages. Then no instance can be entered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """All tables of a scenario file."""

    container: Container = field(default_factory=Container)
    network: Network = field(default_factory=Network)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    api: Api = field(default_factory=Api)
    capacity: Capacity = field(default_factory=Capacity)
    ssm: Ssm = field(default_factory=Ssm)
    market: Market = field(default_factory=Market)
    simulated: Simulated = field(default_factory=Simulated)
    regions: "Mapping[str, Scenario]" = field(default_factory=dict)
    """Tables that differ in one region, by its name: ``[regions.eu-west-1.capacity]``."""
    speed: float = 1.0
    """Seconds of the server's clock in one real second: 60 is an hour a minute. Jobs that really
    run keep the real time, so only simulated ones are accepted at another speed."""
    seed: int | None = None
    """Seed of all random draws; None draws differently each time."""

    def of(self, region: str) -> "Scenario":
        return self.regions.get(region, self)

    def chance(self, name: str = "") -> random.Random:
        """Return a random generator, for the server or for one job by its name."""
        # By name, so that a seed repeats a job whatever the order of the requests.
        return random.Random(None if self.seed is None else f"{self.seed}/{name}")

    def switched(self) -> Iterator[tuple[str, Any]]:
        """Yield the switches that differ from their defaults, with their values.

        ``container.root_mb`` is such a switch.
        """
        for table in fields(self):
            value = getattr(self, table.name)
            default = getattr(Scenario(), table.name)
            if not is_dataclass(value):
                continue
            for switch in fields(value):
                chosen = getattr(value, switch.name)
                if chosen != getattr(default, switch.name):
                    yield f"{table.name}.{switch.name}", chosen
        for region, of_region in self.regions.items():
            yield from (
                (f"regions.{region}.{name}", chosen) for name, chosen in of_region.switched()
            )


def parse(text: str, where: str = "scenario") -> Scenario:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{where}: {error}") from None
    regions = data.pop("regions", {})
    scenario = from_json(Scenario, data, where)
    if not isinstance(regions, dict):
        raise InvalidRequest(f"{where}: regions must be a table of regions, got {regions!r}")
    read_regions = {
        name: _of_region(data, tables, f"{where}: regions.{name}")
        for name, tables in regions.items()
    }
    return replace(scenario, regions=read_regions)


def _of_region(common: Mapping[str, Any], of_region: Any, where: str) -> Scenario:
    if not isinstance(of_region, dict) or set(of_region) - set(BY_REGION):
        # The other tables belong to the whole server.
        raise InvalidRequest(
            f"{where}: a region has the tables {', '.join(BY_REGION)}, got {of_region!r}"
        )
    # Merge key by key: a key that the region leaves out keeps its common value.
    tables = {
        name: {**common.get(name, {}), **table}
        for name, table in of_region.items()
        if isinstance(table, dict)
    }
    return from_json(Scenario, {**common, **of_region, **tables}, where)


def read(path: Path) -> Scenario:
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return Scenario()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the scenario {path} cannot be read: {error}") from None
