"""Read and check ``resourceconfig.json``: the hosts of a job, and which of them this instance is.

Hosts are returned in natural order. SageMaker sorts names lexicographically (``algo-10`` before ``algo-2``), so the
order in the file is not used.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from raysm.contract.names import natural
from raysm.errors import InvalidConfig

T = TypeVar("T")

PRINTABLE = "a text of printable characters"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value of a configuration file, with its position."""

    value: Any
    """As returned by ``json.loads``; None also if it is missing."""
    file: str
    """The file's name, for messages."""
    way: str = ""
    """The path in the file, ``instance_groups[0].hosts``; empty for the whole file."""

    def refusal(self, expected: str) -> InvalidConfig:
        """Return an error that names the expected value."""
        where = f"{self.file}: {self.way}" if self.way else self.file
        return InvalidConfig(f"{where}: expected {expected}, got {shown(self.value)}")

    def expect(self, kind: type[T], expected: str) -> T:
        """Return the value, which must be a ``kind``; ``expected`` describes it in the error.

        Raises:
            InvalidConfig: It has another type. All methods that read raise this.
        """
        # The only type check, so that each error names the file, the path in it and the value.
        if not isinstance(self.value, kind):
            raise self.refusal(expected)
        return self.value

    def members(self, expected: str = "a JSON object") -> dict[str, "ConfigValue"]:
        """Return the members of an object by their keys."""
        return {key: self._member(key, item) for key, item in self.expect(dict, expected).items()}

    def member(self, key: str, expected: str = "a JSON object") -> "ConfigValue":
        """Return one member of an object; its value is None if it is missing."""
        return self._member(key, self.expect(dict, expected).get(key))

    def items(self, expected: str) -> list["ConfigValue"]:
        """Return the items of a list."""
        items = enumerate(self.expect(list, expected))
        return [ConfigValue(item, self.file, f"{self.way}[{i}]") for i, item in items]

    def text(self) -> str:
        """Return a non-empty text of printable characters."""
        text = self.expect(str, PRINTABLE)
        if not text or not text.isprintable():
            raise self.refusal(PRINTABLE)
        return text

    def _member(self, key: str, item: Any) -> "ConfigValue":
        # A newline in a key must not break the reason, which is one line.
        name = key if key.isprintable() else shown(key)
        return ConfigValue(item, self.file, f"{self.way}.{name}" if self.way else name)


def shown(value: Any, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters, for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


HOMOGENEOUS = "homogeneousCluster"
"""SageMaker's name for the one group of a job without instance groups."""

# 253 characters are the most of a DNS name. No slash: a host has a folder of its name among the checkpoints.
HOST_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
# Checked with the standard library alone: this runs before anything is installed in the instance.
HOST_NAME = "a host name such as 'algo-1'"
HOST_NAMES = "a list of host names"


@dataclass(frozen=True, slots=True)
class Host:
    """One instance."""

    name: str
    """``algo-1``: what the other instances resolve."""
    group: str
    """Its instance group; ``homogeneousCluster`` in a job without groups."""
    instance_type: str
    """``ml.m5.large``; empty where the service does not say (Processing)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResourceConfig:
    """``resourceconfig.json``, with every optional key resolved."""

    current_host: str
    """The name of this instance."""
    hosts: tuple[Host, ...]
    """All instances in natural order."""
    network_interface: str | None
    """The interface that the instances share, ``eth0``."""
    raw: Mapping[str, Any]
    """The file as it was."""


def read_resource_config(data: Any, path: Path) -> ResourceConfig:
    """Check the content of ``resourceconfig.json``.

    Args:
        data: The parsed JSON.
        path: Its file, for messages.

    Raises:
        InvalidConfig: A key is missing or malformed, or the keys contradict each other; one line.
    """
    config = ConfigValue(data, str(path))
    values = config.members()
    for key in ("current_host", "hosts"):
        if key not in values:
            raise InvalidConfig(f"{path}: the key {key!r} is missing; the service always writes it")
    names = _names(values["hosts"])
    current = values["current_host"].text()
    if current not in names:
        raise InvalidConfig(f"{path}: current_host {shown(current)} is not one of the hosts {shown(sorted(names))}")
    interface = _optional_text(config.member("network_interface_name"))
    groups = _groups(config.member("instance_groups"), names, path)
    # The service writes no groups for a plain job; user code that asks for its group finds this one.
    default = (HOMOGENEOUS, _optional_text(config.member("current_instance_type")))
    hosts = tuple(Host(name, *groups.get(name, default)) for name in sorted(names, key=natural))
    own_group = config.member("current_group_name").value
    if own_group is not None and groups and own_group != groups[current][0]:
        raise InvalidConfig(
            f"{path}: current_group_name is {shown(own_group)}, but instance_groups lists {current!r} in"
            f" {shown(groups[current][0])}"
        )
    return ResourceConfig(current_host=current, hosts=hosts, network_interface=interface or None, raw=data)


def _optional_text(config: ConfigValue) -> str:
    """Return a text, or an empty one if it is missing."""
    return "" if config.value is None else config.text()


def _names(config: ConfigValue) -> frozenset[str]:
    names = [_host_name(item) for item in config.items(HOST_NAMES)]
    if not names:
        raise config.refusal(HOST_NAMES)
    if len(set(names)) != len(names):
        raise config.refusal(f"{HOST_NAMES}, but {_first_twice(names)!r} is listed twice")
    return frozenset(names)


def _host_name(config: ConfigValue) -> str:
    name = config.expect(str, HOST_NAME)
    if not HOST_PATTERN.fullmatch(name):
        raise config.refusal(HOST_NAME)
    return name


def _first_twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _groups(config: ConfigValue, names: frozenset[str], path: Path) -> dict[str, tuple[str, str]]:
    """Return ``{host: (group, instance type)}``: empty, or with every host in it."""
    if config.value is None:
        return {}
    groups_by_host: dict[str, tuple[str, str]] = {}
    for item in config.items("a list of objects"):
        group = item.member("instance_group_name", "an object").text()
        kind = _optional_text(item.member("instance_type"))
        hosts = item.member("hosts")
        for host in _names(hosts):
            if host not in names:
                raise InvalidConfig(f"{path}: {hosts.way}: {host!r} is not one of the job's hosts")
            if host in groups_by_host:
                raise InvalidConfig(f"{path}: {hosts.way}: {host!r} is in the group {groups_by_host[host][0]!r} too")
            groups_by_host[host] = (group, kind)
    lost = sorted(names - groups_by_host.keys(), key=natural)
    # An empty list of groups means no groups.
    if groups_by_host and lost:
        raise InvalidConfig(f"{path}: instance_groups: the host {lost[0]!r} is in no group")
    return groups_by_host
