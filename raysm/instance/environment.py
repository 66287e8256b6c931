"""Read environment variables and SageMaker's configuration files into one ``Environment``.

This is the only module that reads ``os.environ``. Every process of a job uses it: the bootstrap,
the driver, and Ray's workers. Wrong input raises ``InvalidConfig`` with one line.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from raysm.core.protocol import names
from raysm.core.protocol.names import natural
from raysm.core.protocol.paths import DEFAULT_BASE, Paths
from raysm.core.protocol.store import read_json
from raysm.core.request import Cluster, Ports
from raysm.core.request.codec import from_json
from raysm.core.request.job import JOB_CHANNEL, PAYLOAD_CHANNEL
from raysm.errors import InvalidConfig, InvalidRequest

T = TypeVar("T")
PRINTABLE = "a text of printable characters"
HOMOGENEOUS = "homogeneousCluster"
"""SageMaker's name for the one group of a job without instance groups."""
# A DNS name has at most 253 characters. A slash is not allowed, because the host's name is also a
# folder's name.
HOST_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
HOST_NAME = "a host name such as 'algo-1'"
HOST_NAMES = "a list of host names"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value of a configuration file, with its position.

    Readers raise InvalidConfig if it has another type.
    """

    value: Any
    """As returned by ``json.loads``; None also if it is missing."""
    file: str
    path: str = ""
    """The path in the file, ``instance_groups[0].hosts``; empty for the whole file."""

    def refusal(self, expected: str) -> InvalidConfig:
        where = f"{self.file}: {self.path}" if self.path else self.file
        return InvalidConfig(f"{where}: expected {expected}, got {shown(self.value)}")

    def expect(self, kind: type[T], expected: str) -> T:
        if not isinstance(self.value, kind):
            raise self.refusal(expected)
        return self.value

    def members(self, expected: str = "a JSON object") -> dict[str, "ConfigValue"]:
        return {key: self._member(key, item) for key, item in self.expect(dict, expected).items()}

    def member(self, key: str, expected: str = "a JSON object") -> "ConfigValue":
        return self._member(key, self.expect(dict, expected).get(key))

    def items(self, expected: str) -> list["ConfigValue"]:
        items = enumerate(self.expect(list, expected))
        return [ConfigValue(item, self.file, f"{self.path}[{i}]") for i, item in items]

    def text(self, default: str | None = None) -> str:
        if self.value is None and default is not None:
            return default
        text = self.expect(str, PRINTABLE)
        if not text or not text.isprintable():
            raise self.refusal(PRINTABLE)
        return text

    def _member(self, key: str, item: Any) -> "ConfigValue":
        # The message must be one line, even if the key contains a newline.
        name = key if key.isprintable() else shown(key)
        return ConfigValue(item, self.file, f"{self.path}.{name}" if self.path else name)


def shown(value: Any, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters, for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    group: str
    instance_type: str
    """``ml.m5.large``; empty if the service does not say (Processing)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceConfig:
    current_host: str
    hosts: tuple[Host, ...]
    network_interface: str | None
    raw: Mapping[str, Any]


def read_resource_config(data: Any, path: Path) -> ResourceConfig:
    """Check the content of ``resourceconfig.json``; ``path`` is for messages."""
    config = ConfigValue(data, str(path))
    values = config.members()
    for key in ("current_host", "hosts"):
        if key not in values:
            raise InvalidConfig(f"{path}: the key {key!r} is missing; the service always writes it")
    names = _names(values["hosts"])
    current = values["current_host"].text()
    if current not in names:
        raise InvalidConfig(
            f"{path}: current_host {shown(current)} is not one of the hosts {shown(sorted(names))}"
        )
    groups: dict[str, tuple[str, str]] = {}
    groups_config = config.member("instance_groups")
    for item in groups_config.items("a list of objects") if groups_config.value is not None else ():
        group = (
            item.member("instance_group_name", "an object").text(),
            item.member("instance_type").text(""),
        )
        groups |= dict.fromkeys(_names(item.member("hosts")), group)
    # The service writes no groups for a plain job; user code that asks for its group finds this
    # one.
    default = (HOMOGENEOUS, config.member("current_instance_type").text(""))
    return ResourceConfig(
        current_host=current,
        hosts=tuple(Host(name, *groups.get(name, default)) for name in sorted(names, key=natural)),
        network_interface=config.member("network_interface_name").text("") or None,
        raw=data,
    )


def _names(config: ConfigValue) -> frozenset[str]:
    names = frozenset(item.expect(str, HOST_NAME) for item in config.items(HOST_NAMES))
    if not names:
        raise config.refusal(HOST_NAMES)
    if bad := [name for name in names if not HOST_PATTERN.fullmatch(name)]:
        raise ConfigValue(bad[0], config.file, config.path).refusal(HOST_NAME)
    return names


DEFAULT_RAY_TEMP_DIR = Path("/tmp/ray")
WARM_POOL_CACHE = "SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY"
"""SageMaker's variable with the folder of a warm pool's cache; if it is not set, the documented
path is used."""
CUDA_VISIBLE = "CUDA_VISIBLE_DEVICES"
"""CUDA's variable with the GPUs that a process may use; without it, all of them."""
MAX_TEMP_DIR = 40
"""Maximum length of the path of Ray's temporary folder: a socket's path has up to 107 bytes, and
Ray adds about 65."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    paths: Paths
    job_name: str
    current_host: str
    hosts: tuple[Host, ...]
    """All instances in natural order: ``algo-2`` before ``algo-10``."""
    network_interface: str | None
    hyperparameters: Mapping[str, str]
    channels: tuple[str, ...]
    """Names of the user's channels, sorted, without the payload's."""
    has_checkpoints: bool
    resource_config: Mapping[str, Any]
    input_data_config: Mapping[str, Any]
    payload: Path
    port_overrides: Mapping[str, int]
    addresses: Mapping[str, str]
    """Addresses by host name, for names that no resolver knows."""
    cpus: int | None
    memory_bytes: int | None
    object_store_bytes: int | None
    """Size of Ray's object store; None is derived from ``/dev/shm``."""
    ray_temp_dir: Path
    failure_record: Path | None
    began_s: float | None = None
    """When this instance's first program started, by the monotonic clock, which all of its
    processes share."""

    @property
    def current(self) -> Host:
        return next(host for host in self.hosts if host.name == self.current_host)

    def head(self, cluster: Cluster) -> Host:
        if cluster.head is None:
            return self.hosts[0]
        for host in self.hosts:
            if host.group == cluster.head:
                return host
        groups = ", ".join(sorted({host.group for host in self.hosts}))
        raise InvalidConfig(
            f"{self.paths.resource_config}: the head's group {cluster.head!r} has no instance; "
            f"the groups are {groups}"
        )

    def ranked(self, cluster: Cluster) -> tuple[Host, ...]:
        head = self.head(cluster)
        return (head, *(host for host in self.hosts if host != head))

    def ports(self, requested: Ports) -> Ports:
        """Return the request's ports with the overrides of this instance."""
        try:
            return replace(requested, **self.port_overrides)
        except InvalidRequest as error:
            # Both sets were checked by themselves, but together they may name a port twice.
            raise InvalidConfig(f"{names.PORTS}: {error}") from error


def base_paths(environ: Mapping[str, str] = os.environ) -> Paths:
    """Return the paths of this instance without reading any file.

    Thus even a startup failure can be written.
    """
    paths = Paths.found_in(Path(environ.get(names.BASE_DIR) or DEFAULT_BASE))
    scratch = environ.get(names.SCRATCH)
    return replace(paths, scratch_root=Path(scratch)) if scratch else paths


def warm_pool_cache(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder that a warm pool keeps for its next job, or None.

    None means that there is none, or that it cannot be written.
    """
    folder = Path(environ.get(WARM_POOL_CACHE) or base_paths(environ).warm_pool_cache)
    return folder if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK) else None


def read(environ: Mapping[str, str] = os.environ) -> Environment:
    paths = base_paths(environ)
    resources = read_resource_config(read_json(paths.resource_config), paths.resource_config)
    if paths.description is not None:
        job_name, channels = _read_description(paths.description, paths.channel(""))
        # A Processing job has no files for these: its arguments are in the command, its inputs in
        # the description.
        hyperparameters: Mapping[str, str] = {}
        inputs: Mapping[str, Any] = {}
    else:
        # A Training job has no file with its name.
        job_name = environ.get("TRAINING_JOB_NAME", "")
        texts = _optional_object(paths.hyperparameters).members()
        hyperparameters = {
            key: item.expect(str, "a text, as the service passes it") for key, item in texts.items()
        }
        objects = _optional_object(paths.input_data_config).members()
        inputs = {
            name: channel.expect(dict, "the object of a channel")
            for name, channel in objects.items()
        }
        channels = inputs.keys() if inputs else _folders(paths.channel(""))
    return Environment(
        paths=paths,
        job_name=job_name or "job",
        hyperparameters=hyperparameters,
        channels=tuple(sorted(set(channels) - {PAYLOAD_CHANNEL, JOB_CHANNEL})),
        # The folder counts too, because the file is not documented, although containers on AWS have
        # it.
        has_checkpoints=paths.checkpoint_config.exists() or paths.checkpoints.is_dir(),
        input_data_config=inputs,
        payload=Path(environ.get(names.PAYLOAD) or paths.payload),
        current_host=resources.current_host,
        hosts=resources.hosts,
        network_interface=resources.network_interface,
        resource_config=resources.raw,
        **_own_variables(environ),
    )


def child_environment(
    variables: Mapping[str, str], drop: Iterable[str] = (), environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    dropped = set(drop)
    # ``variables`` may set a dropped name again, for example RAY_ADDRESS.
    return {name: value for name, value in environ.items() if name not in dropped} | dict(variables)


def inherited() -> Mapping[str, str]:
    return os.environ


def with_all_gpus(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of a process that sees all GPUs of the instance."""
    visible = {CUDA_VISIBLE: environ[names.VISIBLE_GPUS]} if names.VISIBLE_GPUS in environ else {}
    return child_environment(visible, [CUDA_VISIBLE], environ)


def show_all_gpus() -> None:
    """Let this process see all GPUs of the instance; call it before CUDA is initialized."""
    os.environ.pop(CUDA_VISIBLE, None)
    os.environ.update(with_all_gpus())


def measures() -> bool:
    """Return whether a training measures its phases; RAYSM_MEASURE=0 switches this off."""
    return os.environ.get(names.MEASURE, "1") != "0"


def train_storage() -> str | None:
    """Return the URI of the default storage of Ray Train; None leaves Ray's own default."""
    return os.environ.get(names.TRAIN_STORAGE)


def tell(variables: Mapping[str, str]) -> None:
    os.environ.update(variables)


def _optional_object(path: Path) -> ConfigValue:
    return ConfigValue(read_json(path) if path.exists() else {}, str(path))


def _read_description(file: Path, folder: Path) -> tuple[str, Iterable[str]]:
    """Return a Processing job's name, and its inputs from the file or else from their folder."""
    config = _optional_object(file)
    own_name = config.member("ProcessingJobName")
    name = own_name.expect(str, "a text") if own_name.value else ""
    inputs = config.member("ProcessingInputs")
    listed = inputs.items("a list of objects with InputName") if inputs.value else []
    channels = [item.member("InputName", "an object with InputName") for item in listed]
    names = [channel.expect(str, "an input's name") for channel in channels if channel.value]
    return name, names or _folders(folder)


def _folders(folder: Path) -> list[str]:
    try:
        return [item.name for item in folder.iterdir() if item.is_dir()]
    except OSError:
        # A job without inputs has no such folder.
        return []


def _own_variables(environ: Mapping[str, str]) -> dict[str, Any]:
    temp_dir = Path(environ.get(names.RAY_TEMP_DIR) or DEFAULT_RAY_TEMP_DIR)
    if not temp_dir.is_absolute() or len(os.fsencode(temp_dir)) > MAX_TEMP_DIR:
        raise InvalidConfig(
            f"{names.RAY_TEMP_DIR} must be an absolute path of at most {MAX_TEMP_DIR} bytes, "
            f"got {shown(str(temp_dir))}"
        )
    record = environ.get(names.FAILURE_RECORD)
    return {
        "port_overrides": _port_overrides(environ),
        "addresses": _variable_object(environ, names.ADDRESSES, str),
        "cpus": _count(environ, names.CPUS, 0),
        "memory_bytes": _count(environ, names.MEMORY_BYTES, 1),
        "object_store_bytes": _count(environ, names.OBJECT_STORE_BYTES, 1),
        "ray_temp_dir": temp_dir,
        "failure_record": Path(record) if record else None,
        "began_s": float(environ[names.BEGAN]) if names.BEGAN in environ else None,
    }


def _port_overrides(environ: Mapping[str, str]) -> Mapping[str, int]:
    ports = _variable_object(environ, names.PORTS, int)
    port_names = [item.name for item in fields(Ports)]
    for name, port in ports.items():
        if name not in port_names:
            raise InvalidConfig(
                f"{names.PORTS}: there is no port {shown(name)}; known are {', '.join(port_names)}"
            )
        if not 0 <= port <= 65535:
            raise InvalidConfig(f"{names.PORTS}: {name} must be 0 to 65535, got {port}")
    return ports


def _variable_object(environ: Mapping[str, str], name: str, kind: Any) -> dict[str, Any]:
    text = environ.get(name)
    if not text:
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{name} is not JSON: {error}") from error
    # The codec does not accept true as an integer.
    values: Any = Mapping[str, kind]
    try:
        return dict(from_json(values, data))
    except InvalidRequest as error:
        raise InvalidConfig(
            f"{name} must be a JSON object of {kind.__name__} values, got {shown(data)}"
        ) from error


def _count(environ: Mapping[str, str], name: str, least: int) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    # isdigit alone also accepts "²", for which int() raises ValueError.
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
        raise InvalidConfig(f"{name} must be a whole number of at least {least}, got {shown(text)}")
    return int(text)
