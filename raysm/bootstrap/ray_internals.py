"""All private names of Ray that raysm uses, and what happens if the installed Ray does not have them.

``python -m raysm.bootstrap.ray_internals`` prints them as a checklist for the installed Ray, and exits with 1 if one is
missing. Run it first with a new release of Ray.

Without a *needed* name there is an error that names Ray's version. Without any other name the feature that uses it is
left out, with one warning. Looking for a name imports nothing of Ray but its module.
"""

import functools
import inspect
import operator
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from raysm.bootstrap.ray_names import RAY, Internal, Setting, Text
from raysm.contract.internals import check_all


def _takes(*names: str) -> Callable[[Any], bool]:
    """Return whether a callable's first parameters have these names."""
    return lambda function: list(inspect.signature(function).parameters)[: len(names)] == list(names)


def _takes_named(*names: str) -> Callable[[Any], bool]:
    return lambda function: set(names) <= inspect.signature(function).parameters.keys()


RAY_CLIENT = Internal(
    module="ray._private.utils",
    name="get_ray_client_dependency_error",
    purpose="keep Ray Client's server, its port and its 90 MB away",
)
START_PROCESS = Internal(
    module="ray._private.services",
    name="start_ray_process",
    purpose="start few workers ahead, and let the dashboard and the monitors go after the work",
    # By place, as ``adapt_start`` takes them and hands them on.
    fits=_takes("command", "process_type"),
)
PROCESS_INFO = Internal(
    module="ray._private.services",
    name="ProcessInfo",
    purpose="let the dashboard and the monitors go after the work",
    fits=lambda info: "process" in info._fields,
)
KILL_ALL = Internal(
    module="ray._private.node",
    name="Node.kill_all_processes",
    purpose="end a node without asking its dashboard to leave",
    fits=lambda kill: "check_alive" in inspect.signature(kill).parameters,
)
GET_NODE = Internal(
    module="ray._private.services",
    name="get_node",
    purpose="end a node that has just begun to register",
    # By place, as ``adapt_get_node`` hands them on.
    fits=_takes("gcs_address", "node_id"),
)
INITIALIZE = Internal(
    module="ray._private.node",
    name="Node.__init__",
    purpose="start the dashboard and the monitor when they are wanted",
)
START_MONITOR = Internal(
    module="ray._private.node",
    name="Node.start_monitor",
    purpose="start the monitor when it is wanted",
    # It is called later, with the node and nothing else.
    fits=lambda start: list(inspect.signature(start).parameters) == ["self"],
)
START_DASHBOARD = Internal(
    module="ray._private.node",
    name="Node.start_api_server",
    purpose="start the dashboard when it is wanted",
    # It is called later by names alone: what Ray gave by position would be lost.
    fits=lambda start: all(
        parameter.kind is parameter.KEYWORD_ONLY for parameter in list(inspect.signature(start).parameters.values())[1:]
    ),
)
PORT_NAMES = {
    "METRICS_AGENT_PORT_NAME": "metrics_agent_port",
    "METRICS_EXPORT_PORT_NAME": "metrics_export_port",
    "DASHBOARD_AGENT_LISTEN_PORT_NAME": "dashboard_agent_listen_port",
    "RUNTIME_ENV_AGENT_PORT_NAME": "runtime_env_agent_port",
}
"""Ray's constants, and what they are: the services whose ports an agent says, the dashboard's three first."""


def _says_ports_in_files(persist: Callable[[str, str, str, int], None]) -> bool:
    """Whether it says a port as a text in a file that has the name of the service and the node's."""
    node = "ab" * 28  # a node's number has so many bytes
    with tempfile.TemporaryDirectory() as folder:
        persist(folder, node, "service", -1)
        return Path(folder, f"service_{node}").read_text() == "-1"


AGENT_PORTS = (
    Internal(
        module="ray._raylet",
        name="persist_port",
        purpose="start the agents of a node when they are wanted",
        fits=_says_ports_in_files,
    ),
    *(
        Internal(
            module="ray._raylet",
            name=name,
            purpose="start the agents of a node when they are wanted",
            fits=functools.partial(operator.eq, value),
        )
        for name, value in PORT_NAMES.items()
    ),
)
"""How an agent says where it listens."""
DASHBOARD_ADDRESS = Internal(
    module="ray._private.ray_constants",
    name="DASHBOARD_ADDRESS",
    purpose="let Ray's State API find the dashboard before it is started",
)
DASHBOARD_NAMESPACE = Internal(
    module="ray._private.ray_constants",
    name="KV_NAMESPACE_DASHBOARD",
    purpose="start the agents of all nodes with the dashboard",
)
DASHBOARD_STARTED = Text(
    module="ray._private.node",
    words='b"webui:url"',
    purpose="start the agents of all nodes with the dashboard",
)
"""The key that Ray's node sets in the GCS once it has started the dashboard."""
NODE_CLIENT = Internal(
    module="ray._private.node",
    name="Node.get_gcs_client",
    purpose="start the agents of all nodes with the dashboard",
    fits=_takes("self"),
)
COMMAND = Internal(module="ray.scripts.scripts", name="main", purpose="start a node", is_needed=True, fits=callable)
GCS_CLIENT = Internal(
    module="ray._raylet", name="GcsClient", purpose="learn which nodes are registered", is_needed=True, fits=callable
)
ALL_NODES = Internal(
    module="ray._raylet",
    # GcsClient passes every call on to this one, which it makes itself.
    name="InnerGcsClient.get_all_node_info",
    purpose="learn which nodes are registered",
    is_needed=True,
    fits=callable,
)
ALIVE = 0
"""The state of a node that is."""
RESOURCE_STATE = Internal(
    module="ray.autoscaler.v2.sdk",
    name="get_cluster_resource_state",
    purpose="name requests that no instance can ever meet",
    fits=_takes("gcs_client"),
)
NODE_INFO = Internal(
    module="ray.core.generated.gcs_pb2",
    name="GcsNodeInfo",
    purpose="learn which nodes are registered",
    is_needed=True,
    fits=lambda info: (
        info.GcsNodeState.Value("ALIVE") == ALIVE
        and {"state", "labels", "node_manager_address"} <= set(info.DESCRIPTOR.fields_by_name.keys())
    ),
)
TRAIN_CALLBACKS = Internal(
    module="ray.train.v2.api.data_parallel_trainer",
    name="DataParallelTrainer._create_default_callbacks",
    purpose="keep Ray Data's manager, and who asks the dashboard once a second, away from a training",
    fits=callable,
)
SCALING_METHODS = ("after_controller_start", "_maybe_send_resource_request", "_cancel_resource_request")
"""What of Ray Train's policy asks the autoscaler."""
SCALING_POLICY = Internal(
    module="ray.train.v2._internal.execution.scaling_policy",
    name="FixedScalingPolicy",
    purpose="ask no autoscaler for the workers of a training",
    fits=lambda policy: all(callable(getattr(policy, name, None)) for name in SCALING_METHODS),
)
FAILURE_LIMITS = Internal(
    module="ray.train",
    name="FailureConfig",
    purpose="bound what Ray Train tries again by itself",
    fits=_takes_named("max_failures", "controller_failure_limit", "max_preemption_failures"),
)
BACKPRESSURE = Internal(
    module="ray._common.ray_option_utils",
    name="task_options",
    purpose="bound the pieces of a model that are under way at a time",
    fits=lambda options: "_generator_backpressure_num_objects" in options,
)
LOGGER = "ray._private.worker"
"""The logger of Ray's greeting."""
WORKER_LOGGER = Internal(
    module="ray._private.worker",
    name="logger",
    purpose="keep Ray's greeting out of the job's log",
    fits=lambda logger: logger.name == LOGGER,
)

INTERNALS = (
    RAY_CLIENT,
    START_PROCESS,
    PROCESS_INFO,
    KILL_ALL,
    GET_NODE,
    INITIALIZE,
    START_MONITOR,
    START_DASHBOARD,
    *AGENT_PORTS,
    DASHBOARD_ADDRESS,
    DASHBOARD_NAMESPACE,
    NODE_CLIENT,
    COMMAND,
    GCS_CLIENT,
    ALL_NODES,
    RESOURCE_STATE,
    NODE_INFO,
    TRAIN_CALLBACKS,
    SCALING_POLICY,
    FAILURE_LIMITS,
    BACKPRESSURE,
    WORKER_LOGGER,
)
"""All names of Ray's Python code."""

OTHER_COMMANDS = ("ray.serve.scripts", "ray.dashboard.modules.job.cli", "ray.util.state.state_cli")
"""Modules of other commands, which cost ``ray start`` half of its time until it begins."""
GCS_ADDRESS = "--gcs-address="
"""The raylet's own option."""
PRESTART = "--num_prestart_python_workers="
"""The raylet's own option."""
DASHBOARD_AGENT = "--dashboard_agent_command="
RUNTIME_ENV_AGENT = "--runtime_env_agent_command="
"""The raylet's options of what it starts as its agents."""
GCS_PORT = "--gcs_server_port="
"""The GCS's own option."""
RAYLET = "raylet"
GCS = "gcs_server"
DASHBOARD = "dashboard"
SPECTATORS = (DASHBOARD, "log_monitor", "monitor")
"""Ray's names of the processes without which the work goes on."""
# The exit code is 1 whichever process ended: which one it was stands in these words alone.
ENDED = "Some Ray subprocesses exited unexpectedly:"
REMAINING = "Remaining processes"
END_OF_LOG = "----- END {} tail (exit code(s)={}) -----"

AGENT_TEXTS = (
    Text(
        words=f'"{DASHBOARD_AGENT}{{}}"', module="ray._private.services", purpose="start that agent when it is wanted"
    ),
    Text(
        words=f'"{RUNTIME_ENV_AGENT}{{}}"', module="ray._private.services", purpose="start that agent when it is called"
    ),
    # With a raylet that takes -1 for a service out of use, the agent need not be there for the node to be registered.
    Text(
        words="# Write -1 to indicate the service is not in use.",
        module="ray.dashboard.agent",
        purpose="start that agent when it is wanted",
    ),
    # The very calls that ``handed_socket`` waits for.
    Text(
        words="sock = socket.socket(family, socktype, proto)",
        module="ray._private.runtime_env.agent.main",
        purpose="hand that agent the socket that its first caller waits at",
    ),
    Text(
        words="sock.bind(sockaddr)",
        module="ray._private.runtime_env.agent.main",
        purpose="hand that agent the socket that its first caller waits at",
    ),
    Text(
        words="site = aiohttp.web.TCPSite(",
        module="ray.dashboard.http_server_agent",
        purpose="hand that agent the socket whose port was announced",
    ),
)
"""How a raylet is told of its agents, and what these do; without one of them they begin with their node."""

DASHBOARD_TEXTS = (
    # The calls that ``handed_socket`` replaces.
    Text(
        words="port_test_socket.bind((host, port))",
        module="ray._private.services",
        purpose="listen at the dashboard's port before the dashboard does",
    ),
    Text(
        words="site = aiohttp.web.TCPSite(self.runner, self.http_host, self.http_port)",
        module="ray.dashboard.http_server_head",
        purpose="hand the dashboard the socket that its first caller waits at",
    ),
    Text(
        words="stdin=subprocess.PIPE if pipe_stdin else None",
        module="ray._private.services",
        purpose="hand the dashboard that socket as its standard input",
    ),
)
"""How the dashboard takes its port; without one of them it is started with its node."""

TEXTS = (
    Text(words=ENDED, module="ray.scripts.scripts", purpose="say which process of Ray ended, not only that one did"),
    Text(words=REMAINING, module="ray.scripts.scripts", purpose="say which process of Ray ended"),
    Text(words=END_OF_LOG, module="ray.scripts.scripts", purpose="say which process of Ray ended, from its log"),
    Text(words=PRESTART, module="ray._private.services", purpose="start few workers ahead"),
    DASHBOARD_STARTED,
    *AGENT_TEXTS,
    *DASHBOARD_TEXTS,
    Text(words=f'"{GCS_PORT}', module="ray._private.services", purpose="see whose process the GCS's port has"),
    # The calls, not only the methods: a method that is never called would be postponed for ever.
    Text(words="self.start_monitor()", module="ray._private.node", purpose="start the monitor when it is wanted"),
    Text(words="self.start_api_server(", module="ray._private.node", purpose="start the dashboard when it is wanted"),
    # An attribute that is set in __init__, so only the source shows it.
    Text(words="self.all_processes", module="ray._private.node", purpose="watch a dashboard that came after the node"),
    Text(
        words="DatasetsCallback(",
        module="ray.train.v2.api.data_parallel_trainer",
        purpose="keep Ray Data's manager away from a training",
    ),
    Text(words=f'= "{GCS}"', module="ray._private.ray_constants", purpose="end a head without waiting for its GCS"),
    Text(words="atexit_handler", module="ray._private.node", purpose="end a node without asking its dashboard"),
    *(
        Text(words=f'= "{process}"', module="ray._private.ray_constants", purpose="let it go after the work")
        for process in SPECTATORS
    ),
    *(
        Text(words=f"from {module} import", module="ray.scripts.scripts", purpose="leave the import out")
        for module in OTHER_COMMANDS
    ),
)
"""All words."""

EVENTS = "ray.dashboard.modules.event.event_consts"
TRAIN = "ray.train.v2._internal.constants"
SETTINGS = (
    Setting(name="RAY_AUTH_MODE", purpose="refuse connections without the token"),
    Setting(name="RAY_AUTH_TOKEN_PATH", purpose="pass the token as a file"),
    Setting(name="RAY_AUTH_TOKEN", purpose="drop the token of another cluster"),
    Setting(name="RAY_NAMESPACE", purpose="drop that of another cluster", module="ray._private.ray_constants"),
    Setting(name="RAY_ADDRESS", purpose="find the cluster", module="ray._private.ray_constants"),
    Setting(
        name="RAY_JOB_CONFIG_JSON_ENV_VAR",
        purpose="drop that of another cluster",
        module="ray._private.runtime_env.constants",
    ),
    Setting(name="RAY_USAGE_STATS_ENABLED", purpose="report nothing", module="ray._common.usage.usage_constants"),
    Setting(name="RAY_AIR_NEW_OUTPUT", purpose="leave Tune's own table out of the log", module="ray.air.constants"),
    Setting(name="RAY_COLOR_PREFIX", purpose="leave colors out of the log", module="ray._private.worker"),
    Setting(name="RAY_DISABLE_FAILURE_SIGNAL_HANDLER", purpose="print no C++ stack at each stop"),
    Setting(name="RAY_enable_metrics_collection", purpose="keep an endpoint without a token closed"),
    Setting(name="AUTOSCALER_METRIC_PORT", purpose="the same", module="ray.autoscaler._private.constants"),
    Setting(name="DASHBOARD_METRIC_PORT", purpose="the same", module="ray.dashboard.consts"),
    Setting(name="METRICS_RECORD_INTERVAL_S", purpose="gather no metrics", module="ray.dashboard.consts"),
    Setting(
        name="RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S",
        purpose="end a node at once",
        module="ray._private.ray_constants",
    ),
    Setting(name="RAY_raylet_client_connect_timeout_milliseconds", purpose="register a node a second earlier"),
    Setting(name="RAY_raylet_client_num_connect_attempts", purpose="try as long nevertheless"),
    Setting(
        name="RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER",
        purpose="have several nodes elsewhere than on Linux",
        module="ray._private.ray_constants",
    ),
    Setting(name="RAY_worker_niceness", purpose="let a training go before the daemons"),
    Setting(name="RAY_memory_monitor_refresh_ms", purpose="look for lack of memory once a second"),
    Setting(name="RAY_gcs_pull_resource_loads_period_milliseconds", purpose="ask less for an autoscaler"),
    Setting(name="SCAN_EVENT_DIR_INTERVAL_SECONDS", purpose="look less for Ray's events", module=EVENTS),
    Setting(name="EVENT_AGENT_REPORT_INTERVAL_SECONDS", purpose="report them less", module=EVENTS),
    Setting(name="RAY_enable_worker_prestart", purpose="have workers before the first task"),
    Setting(name="RAY_idle_worker_killing_time_threshold_ms", purpose="have the next rows sent by the same process"),
    Setting(name="RAY_object_manager_pull_timeout_ms", purpose="have rows sent once over a slow link"),
    Setting(name="RAY_preload_python_modules", purpose="have what they import, too"),
    Setting(name="RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", purpose="see a training's end at once", module=TRAIN),
    Setting(name="RAY_TRAIN_ENABLE_PRINT_PATCH", purpose="leave lines as they are", module=TRAIN),
    Setting(name="RAY_TRAIN_ENABLE_CONTROLLER_STRUCTURED_LOGGING", purpose="the same", module=TRAIN),
    Setting(name="RAY_TRAIN_ENABLE_WORKER_STRUCTURED_LOGGING", purpose="the same", module=TRAIN),
    Setting(name="RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", purpose="ask no autoscaler", module=TRAIN),
    Setting(name="RAY_TRAIN_ENABLE_STATE_TRACKING", purpose="ask no dashboard", module="ray.train.constants"),
    Setting(name="RAY_TRAIN_METRICS_ENABLED", purpose="keep no metrics", module=TRAIN),
    Setting(
        name="RAY_CHDIR_TO_TRIAL_DIR", purpose="stay in the folder of the user's code", module="ray.train.constants"
    ),
)
"""All variables that raysm sets for Ray, or keeps from it."""


CHECKLIST: tuple[Internal | Text | Setting, ...] = (*INTERNALS, *TEXTS, *SETTINGS)
"""All of it."""


def spare_options(internal: Internal, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options``, or none of them, with one warning, where the installed Ray lacks what takes them."""
    return {} if internal.find() is None else dict(options)


def main() -> int:
    """Print the checklist; return 1 when something is missing."""
    return check_all(RAY, CHECKLIST)


if __name__ == "__main__":
    sys.exit(main())
