"""The private names of Ray that raysm uses, in all releases of ``RAY_RANGE``.

If a *needed* name is missing, an error names Ray's version. If another name is missing, what it
saves is left out: the job is only slower. Looking for a name imports only its module.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.core.protocol.packages import RAY_RANGE, installed_version
from raysm.errors import MissingDependency


@dataclass(frozen=True, slots=True)
class Internal:
    module: str
    name: str
    """With dots if it is in a class."""
    purpose: str
    is_needed: bool = False

    def find(self) -> Any:
        """Return the value of this name.

        If it is missing, return None, or raise MissingDependency if it is needed.
        """
        try:
            return self._owner_of(f"{self.name}.")
        except Exception as error:  # importing a module of another release may raise anything
            if self.is_needed:
                version = installed_version("ray") or "(not installed)"
                raise MissingDependency(
                    f"Ray {version} has no {self.module}.{self.name} ({type(error).__name__}), "
                    f"which raysm needs to {self.purpose}",
                    remedy=f"use Ray {RAY_RANGE}",
                ) from error
            return None

    def replace(self, adapt: Callable[[Any], Any]) -> None:
        """Replace the value by ``adapt(value)`` for Ray's own calls, if Ray has the name."""
        original = self.find()
        if original is not None:
            # Set in its module or class, where Ray's own calls look it up.
            setattr(self._owner_of(self.name), self.name.rpartition(".")[2], adapt(original))

    def _owner_of(self, name: str) -> Any:
        value: Any = importlib.import_module(self.module)
        for part in name.split(".")[:-1]:
            value = getattr(value, part)
        return value


def can_postpone_dashboard() -> bool:
    """Return whether the dashboard can start later.

    If only some of these were replaced, it would never start.
    """
    return have(START_PROCESS, INITIALIZE, START_MONITOR, START_DASHBOARD)


def have(*internals: Internal) -> bool:
    return all(each.find() is not None for each in internals)


def spare_options(internal: Internal, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options``; nothing if the installed Ray lacks ``internal``."""
    return {} if internal.find() is None else dict(options)


def spare_pydantic() -> None:
    """Let Ray register no serializers of pydantic's models, in a process that sends none.

    Their import takes 0.1 s.
    """
    if "pydantic" not in sys.modules:
        sys.modules["pydantic"] = None  # type: ignore[assignment]
        PYDANTIC.find()
        del sys.modules["pydantic"]


# Needed names

COMMAND = Internal("ray.scripts.scripts", "main", "start a node", is_needed=True)
GCS_CLIENT = Internal(
    "ray._raylet", "GcsClient", "learn which nodes are registered", is_needed=True
)
# GcsClient delegates its calls to an InnerGcsClient.
ALL_NODES = Internal(
    "ray._raylet",
    "InnerGcsClient.get_all_node_info",
    "learn which nodes are registered",
    is_needed=True,
)
ALIVE = 0

# Adapted by ``ray_start``

RAY_CLIENT = Internal(
    "ray._private.utils",
    "get_ray_client_dependency_error",
    "keep Ray Client's server, its port and its 90 MB away",
)
SETTINGS_OF_START = Internal(
    "ray.scripts.scripts", "ray_constants", "let several nodes share loopback"
)
START_PROCESS = Internal(
    "ray._private.services",
    "start_ray_process",
    "start few workers ahead, and the dashboard and the agents when they are wanted",
)
INITIALIZE = Internal(
    "ray._private.node", "Node.__init__", "start the dashboard and the monitor when they are wanted"
)
START_MONITOR = Internal(
    "ray._private.node", "Node.start_monitor", "start the monitor when it is wanted"
)
START_DASHBOARD = Internal(
    "ray._private.node", "Node.start_api_server", "start the dashboard when it is wanted"
)
DASHBOARD_ADDRESS = Internal(
    "ray._private.ray_constants",
    "DASHBOARD_ADDRESS",
    "let Ray's State API find the dashboard before it is started",
)
DASHBOARD_NAMESPACE = Internal(
    "ray._private.ray_constants",
    "KV_NAMESPACE_DASHBOARD",
    "start the agents of all nodes with the dashboard",
)
NODE_CLIENT = Internal(
    "ray._private.node", "Node.get_gcs_client", "start the agents of all nodes with the dashboard"
)
# Since Ray 2.54. A raylet of an earlier release gives its agents their ports on the command line.
PORT_FILES = Internal("ray._raylet", "persist_port", "start a node's agents when they are wanted")
AGENT_PORT = Internal(
    "ray.core.generated.gcs_pb2",
    "GcsNodeInfo.DASHBOARD_AGENT_LISTEN_PORT_FIELD_NUMBER",
    "find the agents of all nodes to start them with the dashboard",
)
OTHER_COMMANDS = (
    "ray.serve.scripts",
    "ray.dashboard.modules.job.cli",
    "ray.util.state.state_cli",
    "prometheus_client",
)
"""Modules of other commands, the last for an autoscaler, whose imports take half of the start time
of ``ray start``."""

DASHBOARD_PACKAGES = "ray.dashboard.optional_deps"
"""A module that imports what the dashboard needs, only to learn whether it is installed."""

# Names of processes, options on their command lines, and words of Ray's log

RAYLET = "raylet"
GCS = "gcs_server"
DASHBOARD = "dashboard"
LOG_MONITOR = "log_monitor"
GCS_ADDRESS = "--gcs-address="
PRESTART = "--num_prestart_python_workers="
WORKER_COMMAND = "--python_worker_command"
LEAN = ("default_worker.py", "log_monitor.py")
"""Programs that ``ray_imports`` can run: they import Ray first."""
SETUP_WORKER = "setup_worker.py"
AGENTS = {
    "--dashboard_agent_command": (
        "--listen-port",
        "metrics_agent_port,metrics_export_port,dashboard_agent_listen_port",
    ),
    "--runtime_env_agent_command": ("--runtime-env-agent-port", "runtime_env_agent_port"),
}
"""By a raylet's option: the agent's own option for the port at which it is called, and the services
whose ports it writes into files of these names, that port last."""
GCS_PORT = "--gcs_server_port="
# The exit code is always 1; only these lines of the log name the process that ended.
ENDED = "Some Ray subprocesses exited unexpectedly:"
REMAINING = "Remaining processes"
END_OF_LOG = "----- END {} tail (exit code(s)={}) -----"
LOGGER = "ray._private.worker"

# Used by workloads

RUN_TRAINER = Internal(
    "ray.train.v2.api.data_parallel_trainer",
    "DataParallelTrainer._initialize_and_run_controller",
    "let Ray Train save its work after SIGTERM",
)
# Since Ray 2.60.
PREEMPTION_INFO = Internal(
    "ray.train", "get_preemption_info", "let Ray Train save its work after SIGTERM"
)
DRAIN_NODE = Internal(
    "ray._raylet", "InnerGcsClient.drain_node", "let Ray Train save its work after SIGTERM"
)
DRAIN_REASONS = Internal(
    "ray.core.generated.autoscaler_pb2",
    "DrainNodeReason",
    "let Ray Train save its work after SIGTERM",
)
ACTORS = Internal("ray._private.state", "actors", "drain no node before its actors have started")
# The class of the actor that tells the workers of Ray Train which nodes drain.
PREEMPTION_WATCHER = "PreemptionWatcher"

PYDANTIC = Internal(
    "ray._common.pydantic_compat",
    "PYDANTIC_INSTALLED",
    "import it only where its models may be sent",
)
RESOURCE_STATE = Internal(
    "ray.autoscaler.v2.sdk",
    "get_cluster_resource_state",
    "name requests that no instance can ever meet",
)
TRAIN_CALLBACKS = Internal(
    "ray.train.v2.api.data_parallel_trainer",
    "DataParallelTrainer._create_default_callbacks",
    "keep Ray Data's manager, and who asks the dashboard once a second, away from a training",
)
SCALING_POLICY = Internal(
    "ray.train.v2._internal.execution.scaling_policy",
    "FixedScalingPolicy",
    "ask no autoscaler for the workers of a training",
)
TRAIN_VARIABLES = Internal(
    "ray.train.v2._internal.constants",
    "ENV_VARS_TO_PROPAGATE",
    "end within seconds the ranks that wait for one that failed",
)
FAILURE_LIMITS = Internal(
    "ray.train", "FailureConfig", "bound what Ray Train tries again by itself"
)
BACKPRESSURE = Internal(
    "ray._common.ray_option_utils",
    "task_options",
    "bound the pieces of a model that are under way at a time",
)
