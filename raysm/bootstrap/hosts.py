"""Which hosts a job has, and which one this is: ``resourceconfig.json``, checked.

What flows in is the JSON that the service wrote, what flows out are ``Host`` values in natural order. The service
sorts names lexicographically (``algo-10`` before ``algo-2``): nothing here trusts the order of the file.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm.errors import InvalidConfig

__all__ = ["Host", "ResourceConfig", "natural_key", "read_resource_config", "shown"]

HOMOGENEOUS = "homogeneousCluster"
"""SageMaker's name for the one group of a job without instance groups."""

HOST_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


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


def natural_key(name: str) -> tuple[tuple[bool, int | str], ...]:
    """Return a sort key that puts ``algo-2`` before ``algo-10``."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((not part.isdigit(), int(part) if part.isdigit() else part) for part in parts if part)


def shown(value: Any, limit: int = 80) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters, for messages."""
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def read_resource_config(data: Any, path: Path) -> ResourceConfig:
    """Check what ``resourceconfig.json`` holds.

    Args:
        data: The parsed JSON.
        path: Its file, for messages.

    Raises:
        InvalidConfig: A key is missing or malformed, or the keys contradict each other; one line.
    """
    if not isinstance(data, dict):
        raise InvalidConfig(f"{path}: expected a JSON object, got {shown(data)}")
    for key in ("current_host", "hosts"):
        if key not in data:
            raise InvalidConfig(f"{path}: the key {key!r} is missing; the service always writes it")
    names = _names(data["hosts"], f"{path}: hosts")
    current = _text(data["current_host"], f"{path}: current_host")
    if current not in names:
        raise InvalidConfig(f"{path}: current_host {shown(current)} is not one of the hosts {shown(sorted(names))}")
    interface = data.get("network_interface_name")
    if interface is not None:
        interface = _text(interface, f"{path}: network_interface_name")
    groups = _groups(data.get("instance_groups"), names, path)
    own_type = data.get("current_instance_type")
    if own_type is not None:
        _text(own_type, f"{path}: current_instance_type")
    default = (HOMOGENEOUS, own_type or "")
    hosts = tuple(Host(name, *groups.get(name, default)) for name in sorted(names, key=natural_key))
    own_group = data.get("current_group_name")
    if own_group is not None and groups and own_group != groups[current][0]:
        raise InvalidConfig(
            f"{path}: current_group_name is {shown(own_group)}, but instance_groups lists {current!r} in"
            f" {shown(groups[current][0])}"
        )
    return ResourceConfig(current_host=current, hosts=hosts, network_interface=interface or None, raw=data)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise InvalidConfig(f"{where}: expected a text of printable characters, got {shown(value)}")
    return value


def _names(value: Any, where: str) -> frozenset[str]:
    if not isinstance(value, list) or not value:
        raise InvalidConfig(f"{where}: expected a list of host names, got {shown(value)}")
    for name in value:
        if not isinstance(name, str) or not HOST_PATTERN.fullmatch(name):
            raise InvalidConfig(f"{where}: expected a host name such as 'algo-1', got {shown(name)}")
    names = frozenset(value)
    if len(names) != len(value):
        twice = _first_twice(value)
        raise InvalidConfig(f"{where}: {twice!r} is listed twice")
    return names


def _first_twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _groups(value: Any, names: frozenset[str], path: Path) -> dict[str, tuple[str, str]]:
    """Return ``{host: (group, instance type)}``: empty, or with every host in it."""
    if value is None:
        return {}
    where = f"{path}: instance_groups"
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidConfig(f"{where}: expected a list of objects, got {shown(value)}")
    groups_by_host: dict[str, tuple[str, str]] = {}
    for i, item in enumerate(value):
        group = _text(item.get("instance_group_name"), f"{where}[{i}].instance_group_name")
        kind = item.get("instance_type")
        kind = "" if kind is None else _text(kind, f"{where}[{i}].instance_type")
        for host in _names(item.get("hosts"), f"{where}[{i}].hosts"):
            if host not in names:
                raise InvalidConfig(f"{where}[{i}].hosts: {host!r} is not one of the job's hosts")
            if host in groups_by_host:
                raise InvalidConfig(f"{where}[{i}].hosts: {host!r} is in the group {groups_by_host[host][0]!r} too")
            groups_by_host[host] = (group, kind)
    lost = sorted(names - groups_by_host.keys(), key=natural_key)
    if groups_by_host and lost:
        raise InvalidConfig(f"{where}: the host {lost[0]!r} is in no group")
    return groups_by_host
