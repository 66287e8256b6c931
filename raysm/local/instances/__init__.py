"""Instances of a job on this machine, in kinds behind one small interface (``base``)."""

from typing import Literal, TypeAlias

from raysm.local.instances.base import Instance, InstanceSpec, Link, Site
from raysm.local.instances.docker import DockerSite, missing_for_docker
from raysm.local.instances.namespace import NamespaceSite
from raysm.local.instances.network import missing_for_namespaces
from raysm.local.instances.process import ProcessSite
from raysm.local.instances.share import Share

__all__ = [
    "DockerSite",
    "Instance",
    "InstanceKind",
    "InstanceSpec",
    "KINDS",
    "Link",
    "NamespaceSite",
    "ProcessSite",
    "Share",
    "Site",
    "missing_for",
    "missing_for_docker",
    "missing_for_namespaces",
    "open_site",
]

InstanceKind: TypeAlias = Literal["process", "namespace", "docker"]

KINDS: dict[InstanceKind, type[Site]] = {"process": ProcessSite, "namespace": NamespaceSite, "docker": DockerSite}
"""The site of each kind."""


def missing_for(kind: InstanceKind) -> str | None:
    """Return what this machine lacks for instances of ``kind``, and the remedy; None if nothing."""
    if kind == "process":
        return None
    return missing_for_docker() if kind == "docker" else missing_for_namespaces()


def open_site(kind: InstanceKind, image: str | None = None) -> Site:
    """Open a site.

    Args:
        kind: Of instances.
        image: What instances of kind docker run; the other kinds run what this machine has.

    Raises:
        InvalidRequest: This machine lacks something for that kind; the message says what.
    """
    return DockerSite(image) if kind == "docker" else KINDS[kind]()
