"""Instances of a job on this machine, in kinds behind one small interface (``base``)."""

from collections.abc import Callable
from typing import Literal, TypeAlias

from raysm.local.instances.base import Instance, InstanceSpec, Link, Site
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.network import missing_for_namespaces
from raysm.local.instances.process import ProcessSite
from raysm.local.instances.share import Share

__all__ = [
    "Instance",
    "InstanceKind",
    "InstanceSpec",
    "KINDS",
    "Link",
    "NamespaceSite",
    "ProcessSite",
    "Share",
    "Site",
    "missing_for_namespaces",
]

InstanceKind: TypeAlias = Literal["process", "namespace"]

KINDS: dict[InstanceKind, Callable[[], Site]] = {"process": ProcessSite, "namespace": NamespaceSite}
"""What opens a site of each kind."""
