"""Make the payload inside the instance, for a job sent by the SageMaker SDK.

Such a job has ``distributed=raysm.sdk.Ray()``.

The SDK sends two channels: ``sm_drivers``, which contains raysm's driver folder with the token, and
``code``. The payload is like one of raysm's own client, and is the same on every instance. The
entry script gets the hyperparameters as arguments, as the SDK's own driver passes them
(``request.job.hyperparameter_arguments``).
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from raysm.core.protocol import payload
from raysm.core.protocol.paths import SDK_CODE, SDK_DRIVERS
from raysm.core.protocol.payload import Payload
from raysm.core.protocol.seal import verify
from raysm.core.protocol.store import read_json
from raysm.core.request import Cluster, Input, InstanceGroup, JobRequest, Workload
from raysm.core.request.codec import from_json
from raysm.instance.environment import ConfigValue, Environment

DISTRIBUTED = "distributed.json"
SOURCE_CODE = "sourcecode.json"
PYTHON_FILE = (
    "the SourceCode's script, which must be a Python file: raysm.sdk.Ray runs it on the head"
)
OWN_CHANNELS = (SDK_CODE, SDK_DRIVERS)


# A class of its own, because the module of raysm.sdk.Ray imports the SDK, which the image may lack.
@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    init: bool = False
    head: str | None = None
    coordinator_only: bool = False
    min_instances: int | None = None
    join_timeout_s: float = 600.0
    placement_timeout_s: float = 600.0
    on_instance_loss: Literal["fail", "continue"] = "fail"
    silence_s: float = 30.0


def is_driver_folder(folder: Path) -> bool:
    """Return whether ``folder`` is raysm's driver folder in the SDK's channel, no payload."""
    return (folder.parents[1] / DISTRIBUTED).is_file() and not (folder / payload.REQUEST).exists()


def make_payload(drivers: Path, environment: Environment, folder: Path) -> Payload:
    """Write the payload of this job into ``folder``.

    The payload is made from raysm's driver folder in the channel ``sm_drivers``.
    """
    verify(drivers, payload.TOKEN)
    options = from_json(Options, read_json(drivers.parents[1] / DISTRIBUTED), DISTRIBUTED)
    code = environment.paths.channel(SDK_CODE)
    script = _entry_script(drivers.parents[1] / SOURCE_CODE)
    make_workload: Callable[..., Workload] = Workload.named("script")
    request = JobRequest(
        name=environment.job_name,
        workload=make_workload(script, ray_init=options.init),
        cluster=_cluster(environment, options),
        inputs={
            name: _input(environment, name)
            for name in environment.channels
            if name not in OWN_CHANNELS
        },
        hyperparameters=environment.hyperparameters,
        hyperparameters_as_args=True,
    )
    # The code stays in the SDK's channel, to which SM_SOURCE_DIR points.
    payload.pack_here(request, folder, source=code, token_file=drivers / payload.TOKEN)
    return payload.load(folder)


def _entry_script(path: Path) -> str:
    script = ConfigValue(read_json(path), str(path)).member("entry_script")
    if PurePosixPath(name := script.expect(str, PYTHON_FILE)).suffix != ".py":
        raise script.refusal(PYTHON_FILE)
    return name


def _cluster(environment: Environment, options: Options) -> Cluster:
    groups: dict[str, InstanceGroup] = {}
    for host in environment.hosts:
        count = groups[host.group].count if host.group in groups else 0
        # The file may lack the type, which is not used any more, because the instances are already
        # running.
        groups[host.group] = InstanceGroup(host.group, host.instance_type or "unknown", count + 1)
    shape: dict[str, Any] = {"groups": tuple(groups.values())}
    # A job without groups also has one group here; it counts only if ``head`` names it.
    if len(groups) == 1 and options.head is None:
        group = next(iter(groups.values()))
        shape = {"instance_type": group.instance_type, "count": group.count}
    rules = {name: value for name, value in asdict(options).items() if name != "init"}
    return Cluster(**shape, **rules)


def _input(environment: Environment, channel: str) -> Input:
    config = environment.input_data_config.get(channel, {})
    sharded = config.get("S3DistributionType") == "ShardedByS3Key"
    # No file names the source of the channel, so the input is its folder in this instance.
    return Input(
        environment.paths.channel(channel).as_uri(),
        distribution="ShardedByS3Key" if sharded else "FullyReplicated",
    )
