"""Instances of a job on this machine, in kinds behind one small interface (``base``).

``raysm.core.request.targets`` describes the kinds, because the client names them. ``SITES`` has the
class of each.
"""

import pkgutil

from raysm.core.request.targets import INSTANCE_KINDS, instance_kind
from raysm.errors import InvalidRequest
from raysm.local.instances.base import Instance, InstanceSpec, Link, Site

__all__ = [
    "SITES",
    "Instance",
    "InstanceSpec",
    "Link",
    "Site",
    "best_kind",
    "foreign_opt_ml",
    "missing_for",
    "open_site",
]

SITES: dict[str, str] = {
    "process": "raysm.local.instances.process:ProcessSite",
    "namespace": "raysm.local.instances.namespace:NamespaceSite",
    "docker": "raysm.local.instances.docker:DockerSite",
}
"""The class of each kind whose instances run programs, imported on first use."""


def site_class(kind: str) -> type[Site]:
    site: type[Site] = pkgutil.resolve_name(SITES[kind])
    return site


def missing_for(kind: str) -> str | None:
    return site_class(kind).missing() if instance_kind(kind).runs_programs else None


def foreign_opt_ml(kind: str) -> str | None:
    """Return why ``/opt/ml`` in instances of the kind is this machine's.

    Return None if it is their own.
    """
    return site_class(kind).foreign_opt_ml(()) if instance_kind(kind).runs_programs else None


def open_site(kind: str, image: str | None = None) -> Site:
    """Open a site; only some kinds run the ``image``.

    Raise InvalidRequest if this machine lacks something for the kind.
    """
    if not instance_kind(kind).runs_programs:
        raise InvalidRequest(
            "simulated instances run nothing: send the job to the embedded SageMaker "
            "(on=raysm.Local(instance_kind='simulated')), which plays it by its scenario"
        )
    return site_class(kind).open(image)


def best_kind() -> str:
    """Return the kind that is most like SageMaker and works on this machine without an image."""
    # INSTANCE_KINDS is ordered from the least to the most alike.
    able = [
        kind.name
        for kind in INSTANCE_KINDS.values()
        if not kind.needs_image and missing_for(kind.name) is None
    ]
    return able[-1]
