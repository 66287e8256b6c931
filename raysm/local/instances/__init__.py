"""Instances of a job on this machine, in kinds behind one small interface (``base``).

``raysm.request.targets`` describes the kinds, because the client names them. ``SITES`` has the class of each.
"""

import pkgutil

from raysm.local.instances.base import Instance, InstanceSpec, Link, Site, Visit
from raysm.local.instances.share import Share
from raysm.request.targets import INSTANCE_KINDS, instance_kind

__all__ = [
    "SITES",
    "Instance",
    "InstanceSpec",
    "Link",
    "Share",
    "Site",
    "Visit",
    "best_kind",
    "missing_for",
    "open_site",
]

SITES: dict[str, str] = {
    "simulated": "raysm.local.instances.simulated:SimulatedSite",
    "process": "raysm.local.instances.process:ProcessSite",
    "namespace": "raysm.local.instances.namespace:NamespaceSite",
    "docker": "raysm.local.instances.docker:DockerSite",
}
"""The class that opens the site of each kind, imported on first use: the docker module needs packages of its own."""


def site_class(kind: str) -> type[Site]:
    """Return the class of a kind's sites.

    Raises:
        InvalidRequest: There is no such kind.
    """
    site: type[Site] = pkgutil.resolve_name(SITES[instance_kind(kind).name])
    return site


def missing_for(kind: str) -> str | None:
    """Return what this machine lacks for instances of ``kind``, and the remedy; None if nothing.

    Raises:
        InvalidRequest: There is no such kind.
    """
    return site_class(kind).missing()


def open_site(kind: str, image: str | None = None) -> Site:
    """Open a site.

    Args:
        kind: Of instances.
        image: What instances of a kind that needs one run; the others run what this machine has.

    Raises:
        InvalidRequest: There is no such kind, or this machine lacks something for it; the message says what.
    """
    return site_class(kind).open(image)


def best_kind() -> str:
    """Return the kind that is most like the service, of those that this machine can play without an image."""
    able = [kind.name for kind in INSTANCE_KINDS.values() if not kind.needs_image and missing_for(kind.name) is None]
    # Kinds stand in the order of their likeness.
    return able[-1]
