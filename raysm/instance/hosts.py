"""Read ``resourceconfig.json``: the hosts of a job, and which of them this instance is.

Hosts are returned in natural order. SageMaker sorts names lexicographically (``algo-10`` before
``algo-2``), so the order in the file is not used.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from raysm.core.protocol.names import natural
from raysm.errors import InvalidConfig

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
    """A value of a configuration file, with its position; readers raise InvalidConfig if it has another type."""

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
