"""Environment variables for child processes.

They are ``SM_*`` for user code, and those for Ray, the network and EFA.

Pure functions return mappings, which ``environment.child_environment`` adds to this process's
environment. The ``SM_*`` variables are those of sagemaker-training-toolkit and of the container
drivers of SageMaker's SDK v3: texts as they are, everything else as JSON with sorted keys. Hosts
are in natural order, the order of ranks: ``algo-2`` before ``algo-10``.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from raysm.core.protocol import names
from raysm.core.protocol.names import TUNING_OBJECTIVE
from raysm.core.request import JobRequest, Workload
from raysm.instance.environment import CUDA_VISIBLE, Environment

MAX_VARIABLE = 128 * 1024 - 1
"""Maximum bytes of one ``NAME=value`` on Linux (MAX_ARG_STRLEN without the NUL); with a longer one,
exec fails."""
RDMA_TYPES = ("ml.p4d.24xlarge", "ml.p4de.24xlarge")
"""Types for which an older libfabric does not detect that EFA has RDMA."""
INTERFACE_NAMES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
"""Variables with the network interface for NCCL, GLOO, and TensorPipe, which torch's RPC uses."""
HIDES_GPUS = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""Ray's variable: 1 hides GPUs from workers that ask for none. Its default differs by release."""
REACHES_OTHERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray's variable, which has its effect on every system."""
RAYS_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
SERVICE_PREFIX = "sagemaker_"
"""Prefix of the SDK's own hyperparameters; scripts find them in ``SM_FRAMEWORK_PARAMS``."""
_NAMES = (
    "program submit_directory enable_cloudwatch_metrics region "
    "container_log_level job_name s3_output"
)
SERVICE_HYPERPARAMETERS = tuple(f"{SERVICE_PREFIX}{name}" for name in _NAMES.split())
"""Hyperparameters of the SDK that do not concern the framework."""

DISTRIBUTIONS = (
    "mpi parameter_server distributed_dataparallel pytorch_ddp pytorch_xla_multi_worker "
    "multi_worker_mirrored_strategy torch_distributed"
).split()

MASTER_PORT = 7777
"""The port that the SDK's drivers name to scripts."""
DROPPED = ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_NAMESPACE", RAYS_JOB)
"""Variables that would override those of raysm with another cluster or token."""


DRIVER: Mapping[str, str] = {
    # The driver's output is a pipe, which Python would buffer.
    "PYTHONUNBUFFERED": "1",
    # Otherwise Ray colors its output even in a log file.
    "RAY_COLOR_PREFIX": "0",
    # Otherwise Ray prints a C++ stack on SIGTERM, with which every stop begins. After a crash,
    # Python's faulthandler, which Ray enables, still prints the Python stack.
    "RAY_DISABLE_FAILURE_SIGNAL_HANDLER": "1",
}
"""Variables of the driver, unless the user's environment sets them."""


def ray_variables(token_file: Path, temp_dir: Path, *, on_loopback: bool) -> dict[str, str]:
    """Return the variables of every Ray process: the token file's path, and no metrics ports.

    With ``on_loopback`` all nodes of the cluster share this machine's 127.0.0.1, where alone Ray
    then listens. ``ps e`` would show a token in a variable, and a token in the home folder would
    apply to other clusters too.
    """
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_USAGE_STATS_ENABLED": "0",
        # An empty folder, because Ray prints the files in it as lines of the job, and any user of
        # the machine may make the default /tmp/tpu_logs. Each driver links its node's logs to it
        # again.
        "TPU_LOG_DIR": str(temp_dir / "no_tpu_logs"),
        # These three endpoints do not require the token; an impossible port keeps them closed.
        "RAY_enable_metrics_collection": "0",
        "AUTOSCALER_METRIC_PORT": "-1",
        "DASHBOARD_METRIC_PORT": "-1",
        # The dashboard still collects metrics in this interval, by reading the page tables of nine
        # processes.
        "METRICS_RECORD_INTERVAL_S": "86400",
        # A raylet connects to its own object store, which may not listen yet. Ray tries ten times,
        # once a second, and among many nodes one nearly always loses that second; so try for as
        # long, but every 20 ms.
        "RAY_raylet_client_connect_timeout_milliseconds": "20",
        "RAY_raylet_client_num_connect_attempts": "500",
        # 1: Ray takes an address for loopback that other machines can reach, and listens at all
        # addresses. 0: loopback stays what it is, and only one node is allowed, which ``ray_start``
        # changes.
        REACHES_OTHERS: "0" if on_loopback else "1",
    }


def gpu_variables(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which any release of Ray hides GPUs from workers that ask for none.

    Newer releases no longer do so by default: all CPU tasks of an instance could then open the same
    GPU.
    """
    variables = {HIDES_GPUS: inherited.get(HIDES_GPUS, "1")}
    if CUDA_VISIBLE in inherited:
        variables[names.VISIBLE_GPUS] = inherited[CUDA_VISIBLE]
    return variables


def workload_variables(workload: Workload) -> dict[str, str]:
    values = dict(workload.ray_variables)
    if workload.wants_all_cpus_at_once:
        # Each instance starts workers as soon as it joins; otherwise only the head does, when the
        # driver starts.
        values["RAY_enable_worker_prestart"] = "1"
    if workload.preloads:
        values["RAY_preload_python_modules"] = ",".join(workload.preloads)
    return values


def network_variables(
    environment: Environment, efa: bool, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables for NCCL, GLOO, torch's RPC and libfabric.

    Those that the user has set are left out.
    """
    variables: dict[str, str] = {}
    if environment.network_interface:
        # Otherwise the libraries resolve this host's own name, which on SageMaker is "aws" on every
        # instance.
        variables |= dict.fromkeys(INTERFACE_NAMES, environment.network_interface)
    if not environment.addresses:
        # By default NCCL also uses the host's name to distinguish hosts. Instances with given
        # addresses may share one machine, where their workers should use shared memory.
        variables["NCCL_HOSTID"] = environment.current_host
    if efa:
        variables["FI_PROVIDER"] = "efa"
        variables["FI_EFA_FORK_SAFE"] = "1"
        if environment.current.instance_type in RDMA_TYPES:
            variables["FI_EFA_USE_DEVICE_RDMA"] = "1"
    return {name: value for name, value in variables.items() if name not in inherited}


def user_variables(
    environment: Environment,
    request: JobRequest,
    source: Path,
    cpus: int,
    gpus: int,
    inherited: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return this instance's ``SM_*`` variables, and the folder of state that survives the job.

    A value of more than 128 KiB is left out, because the system would refuse to start the process.
    """
    values = _values(environment, request, source, cpus, gpus, inherited)
    channels = {
        channel: str(environment.paths.channel(channel)) for channel in environment.channels
    }
    values["training_env"] = {**values, **_only_in_training_env(environment, values, channels)}
    values |= {f"channel_{channel}": path for channel, path in channels.items()}
    # ``batch-size`` is both ``hp_batch-size``, as the toolkit names it, and ``hp_batch_size``, as
    # the SDK does.
    toolkit = {f"hp_{name}": value for name, value in values["hps"].items()}
    values |= toolkit | {name.replace("-", "_"): value for name, value in toolkit.items()}
    texts = {
        f"SM_{name.upper()}": value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in values.items()
    }
    variables = {name: value for name, value in texts.items() if _fits(name, value)}
    if environment.has_checkpoints:
        variables[names.STATE] = str(environment.paths.state(environment.current_host))
    if request.stop_on_nan is not None:
        variables[names.STOP_ON_NAN] = request.stop_on_nan
    return variables


def _values(
    environment: Environment,
    request: JobRequest,
    source: Path,
    cpus: int,
    gpus: int,
    inherited: Mapping[str, str],
) -> dict[str, Any]:
    paths = environment.paths
    current = environment.current
    entry = request.workload.entry_script
    script = "" if entry is None else entry.script
    groups: dict[str, dict[str, Any]] = {}
    for host in environment.hosts:
        group = groups.setdefault(
            host.group,
            {"instance_group_name": host.group, "instance_type": host.instance_type, "hosts": []},
        )
        group["hosts"].append(host.name)
    hosts = [host.name for host in environment.hosts]
    decoded = _decoded(environment.hyperparameters)
    framework = {name: value for name, value in decoded.items() if name.startswith(SERVICE_PREFIX)}
    framework_params = {
        name: value for name, value in framework.items() if name not in SERVICE_HYPERPARAMETERS
    }
    values = {
        "hosts": hosts,
        "host_count": len(hosts),
        "current_host": environment.current_host,
        "current_host_rank": hosts.index(environment.current_host),
        "current_instance_type": current.instance_type,
        "current_instance_group": current.group,
        "current_instance_group_hosts": groups[current.group]["hosts"],
        "instance_groups": list(groups),
        "instance_groups_dict": groups,
        "distribution_instance_groups": _distribution_groups(framework_params, current.group),
        "is_hetero": len(groups) > 1,
        "master_addr": environment.addresses.get(hosts[0], hosts[0]),
        "master_port": MASTER_PORT,
        "network_interface_name": environment.network_interface or "",
        "num_cpus": cpus,
        "num_gpus": gpus,
        "num_neurons": 0,
        "log_level": framework.get("sagemaker_container_log_level", 20),
        "channels": list(environment.channels),
        "hps": {
            name: value
            for name, value in decoded.items()
            if name not in framework and name != TUNING_OBJECTIVE
        },
        "input_dir": str(paths.base / "input"),
        "input_data_dir": str(paths.channels),
        "input_config_dir": str(paths.config),
        "input_data_config": dict(environment.input_data_config),
        "resource_config": dict(environment.resource_config),
        "model_dir": str(paths.model),
        "output_dir": str(paths.base / "output"),
        "output_failure": str(paths.failure),
        "output_data_dir": str(paths.output_data),
        "output_intermediate_dir": str(paths.base / "output" / "intermediate"),
        "job_name": environment.job_name,
        "module_dir": str(source),
        "module_name": script.removesuffix(".py"),
        "source_dir": str(source),
        "entry_script": script,
        "user_entry_point": script,
        "user_args": list(request.script_args),
        "framework_module": inherited.get("SAGEMAKER_TRAINING_MODULE", ""),
        "framework_params": framework_params,
    }
    # The toolkit sets it only on instances of an UltraServer.
    if topology := environment.resource_config.get("topology"):
        values["topology"] = topology
    return values


def _distribution_groups(framework_params: Mapping[str, Any], current: str) -> Any:
    is_spread = any(framework_params.get(f"sagemaker_{name}_enabled") for name in DISTRIBUTIONS)
    return framework_params.get(
        "sagemaker_distribution_instance_groups", [current] if is_spread else []
    )


def _only_in_training_env(
    environment: Environment, values: Mapping[str, Any], channels: Mapping[str, str]
) -> dict[str, Any]:
    groups = values["distribution_instance_groups"]
    distribution_hosts = [host.name for host in environment.hosts if host.group in groups]
    master = (distribution_hosts or values["hosts"])[0]
    return {
        "additional_framework_parameters": values["framework_params"],
        "channel_input_dirs": channels,
        "distribution_hosts": distribution_hosts,
        "hyperparameters": values["hps"],
        "is_master": environment.current_host == master,
        "is_modelparallel_enabled": None,
        "is_smddpmprun_installed": False,
        "is_smddprun_installed": False,
        "master_hostname": master,
        "topology": environment.resource_config.get("topology", []),
    }


def _decoded(hyperparameters: Mapping[str, str]) -> dict[str, Any]:
    """Parse the texts of hyperparameters as JSON; texts that are not JSON stay unchanged."""
    decoded: dict[str, Any] = {}
    for name, text in hyperparameters.items():
        try:
            decoded[name] = json.loads(text)
        except (ValueError, RecursionError):
            decoded[name] = text
    return decoded


def _fits(name: str, value: str) -> bool:
    # A JSON escape may decode to NUL or to a lone surrogate, which an environment variable cannot
    # contain.
    if not name.isprintable() or "=" in name or "\0" in value:
        return False
    try:
        return len(name.encode()) + 1 + len(value.encode()) <= MAX_VARIABLE
    except UnicodeEncodeError:
        return False
