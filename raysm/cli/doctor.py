"""What stands in the way of a job: each check says what it found, and the remedy where something is missing."""

import importlib
import importlib.metadata
import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.choosing import read_settings
from raysm.client import endpoint
from raysm.client.images.default_image import default_image
from raysm.client.service import Service
from raysm.client.settings import Settings
from raysm.contract.home import home
from raysm.errors import InvalidRequest, RaysmError
from raysm.request import AWS, Cluster
from raysm.request.instance_kinds import INSTANCE_KINDS

__all__ = ["Check", "aws_checks", "local_checks", "run", "train_check"]

LOCAL_PACKAGES = ("ray", "torch", "pyarrow", "numpy", "moto")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    """What was looked at."""
    good: bool
    """Whether what was looked at is there."""
    found: str
    """What was found."""
    remedy: str = ""
    """What to do; empty where nothing need be done."""
    needed: bool = True
    """Whether jobs cannot run without it."""

    @property
    def word(self) -> str:
        """Say it in a word."""
        return "ok" if self.good else "MISS" if self.needed else "none"


def run(arguments: Arguments, console: Console) -> bool:
    """Print every check; return whether all are good."""
    settings = read_settings(arguments)
    checks = list(_aws(settings, arguments.instance_type) if settings.on is AWS else local_checks())
    if arguments.json:
        print(json.dumps([asdict(check) for check in checks], indent=1))
    else:
        for check in checks:
            console.print(Text(f"{check.word:<4}  {check.name:<14} {check.found}"), soft_wrap=True)
            if check.remedy:
                console.print(Text(f"      {'':<14} -> {check.remedy}"), soft_wrap=True)
    return all(check.good or not check.needed for check in checks)


def local_checks() -> Iterator[Check]:
    """Look at what jobs on this machine need."""
    from raysm.local.instances import missing_for

    for name in LOCAL_PACKAGES:
        there = importlib.util.find_spec(name) is not None
        found = importlib.metadata.version(name) if there else "not installed"
        yield Check(name=name, good=there, found=found, remedy="" if there else "python3 -m pip install 'raysm[local]'")
    yield train_check()
    record = endpoint.answering(home())
    yield Check(name="server", good=True, found=record.url if record else f"starts when needed (home {home()})")
    for kind in INSTANCE_KINDS:
        missing = missing_for(kind)
        found = f"instances of kind {kind} can run" if missing is None else missing
        yield Check(name=kind, good=missing is None, found=found, needed=False)


def train_check(load: Callable[[], object] = lambda: importlib.import_module("ray.train")) -> Check:
    """Look whether Ray Train can be imported: it needs packages (pandas …) that Ray without its extra does not bring.

    Args:
        load: Imports it.
    """
    try:
        load()
    except ImportError as error:
        found = f"cannot be imported, trainings will fail: {error.__cause__ or error}"  # the cause names the package
        return Check(name="ray.train", good=False, needed=False, found=found, remedy="pip install 'raysm[train]'")
    return Check(name="ray.train", good=True, found="can be imported")


def _aws(settings: Settings, instance_type: str | None) -> Iterator[Check]:
    named_role = ("aws", "role") in settings
    if not named_role:
        yield Check(name="role", good=False, found="no role was named", remedy="raysm doctor --on aws --role ARN")
    # A target is not made without a role; the other checks need none.
    service = Service(settings.target(role="arn:aws:iam::000000000000:role/none"))
    yield from aws_checks(service, instance_type=instance_type, named_role=named_role)


def aws_checks(service: Service, *, instance_type: str | None, named_role: bool = True) -> Iterator[Check]:
    """Look at what jobs on AWS need: credentials, region, role, image, quota, and the plugin for the dashboard."""
    target = service.target
    yield _look("region", lambda: service.region)
    credentials = _look("credentials", lambda: service.call("sts", "get_caller_identity")["Arn"])
    yield credentials
    # Without credentials this would only fail the same way once more.
    if credentials.good and named_role:
        yield _look("role", lambda: _role(service, target.job_role()))
    yield _look("image", lambda: target.image or _default_image(service, instance_type))
    if credentials.good and instance_type:
        yield _look("quota", lambda: _quota(service, instance_type))
    plugin = shutil.which("session-manager-plugin")
    yield Check(
        name="plugin",
        good=plugin is not None,
        needed=False,
        found=plugin or "session-manager-plugin is not installed: the dashboard cannot be reached from here",
        remedy="" if plugin else "install AWS's session-manager-plugin",
    )


def _look(name: str, find: Callable[[], str]) -> Check:
    try:
        return Check(name=name, good=True, found=find())
    except InvalidRequest as error:
        return Check(name=name, good=False, found="not usable", remedy=str(error))
    except RaysmError as error:
        # A ServiceError has its remedy behind the semicolon.
        found, _, remedy = str(error).partition("; ")
        return Check(name=name, good=False, found=found, remedy=remedy)


def _role(service: Service, arn: str) -> str:
    # A role's ARN may have a path before the name, which GetRole does not take.
    role = service.call("iam", "get_role", RoleName=arn.rpartition("/")[2])["Role"]
    policy: Any = role["AssumeRolePolicyDocument"]
    # Sought in the whole text: the principal may be one service or several, in any statement.
    if "sagemaker.amazonaws.com" not in json.dumps(policy):
        raise InvalidRequest(f"{arn} cannot be assumed by sagemaker.amazonaws.com: add it to the role's trust policy")
    return arn


def _default_image(service: Service, instance_type: str | None) -> str:
    image, registry = default_image(Cluster(instance_type or "ml.m5.large"), service.region)
    return f"{image.uri(registry)} ({image.describe()}), since no image is named"


def _quota(service: Service, instance_type: str) -> str:
    # By its name: the code of a quota does not follow from the instance type.
    wanted = f"{instance_type} for training job usage"
    token: dict[str, str] = {}
    while True:
        page = service.call("service-quotas", "list_service_quotas", ServiceCode="sagemaker", **token)
        for quota in page["Quotas"]:
            if quota["QuotaName"] == wanted:
                if quota["Value"] < 1:
                    raise InvalidRequest(f"the quota of {wanted} is 0: ask for more in the console of Service Quotas")
                return f"{quota['Value']:.0f} instances of {wanted}"
        if not page.get("NextToken"):
            raise InvalidRequest(f"there is no quota of {wanted}: check the instance type")
        token = {"NextToken": page["NextToken"]}
