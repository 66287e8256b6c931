"""What can play an instance on this machine: one value each, from which all that has to know the kinds is derived.

A further kind is its module (a ``raysm.local.instances.base.Site``) and one entry below: ``Local``, the command line's
choices, ``raysm doctor``, the plan, and the server that plays it all go by this table.
"""

import re
from dataclasses import dataclass

from raysm.errors import InvalidRequest

__all__ = ["INSTANCE_KINDS", "InstanceKind", "instance_kind", "kind_of_image"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceKind:
    """One kind of instance."""

    name: str
    """As a request names it."""
    summary: str
    """For people, in a list: ``processes``."""
    # As text: this half imports nothing of what plays instances, whose packages a client may lack.
    site: str
    """The class that opens its site, ``module:Class``; imported on the machine that plays instances, when it does."""
    life: str = "raysm.local.server.run:JobRun"
    """The class that carries out the life of a job of such instances, on the embedded server; named as ``site``."""
    keeps_any_time: bool = False
    """Whether its jobs follow a clock that runs faster than this machine's."""
    runs_programs: bool = True
    """Whether what a job carries is really run; else it ends as a scenario says, and leaves no file."""
    needs_image: bool = False
    """Whether it runs a container image, so that a request has to name one and a job's tag has to name the kind."""

    @property
    def image(self) -> str:
        """What CreateTrainingJob, which wants an image, is told where none is needed: the kind's name."""
        return f"raysm/{self.name}:latest"


INSTANCE_KINDS: dict[str, InstanceKind] = {
    kind.name: kind
    for kind in (
        InstanceKind(
            name="simulated",
            summary="nothing, which ends as the scenario says",
            site="raysm.local.instances.simulated:SimulatedSite",
            life="raysm.local.server.simulated:SimulatedLife",
            keeps_any_time=True,
            runs_programs=False,
        ),
        InstanceKind(name="process", summary="processes", site="raysm.local.instances.process:ProcessSite"),
        InstanceKind(
            name="namespace",
            summary="Linux namespaces (root)",
            site="raysm.local.instances.namespace:NamespaceSite",
        ),
        InstanceKind(
            name="docker",
            summary="containers",
            site="raysm.local.instances.docker:DockerSite",
            needs_image=True,
        ),
    )
}
"""By name, from the one that is least like the service to the one that is most."""


def instance_kind(name: str) -> InstanceKind:
    """Return the kind of this name.

    Raises:
        InvalidRequest: There is none.
    """
    if name not in INSTANCE_KINDS:
        raise InvalidRequest(f"{name!r} is not a kind of instance: {', '.join(INSTANCE_KINDS)}")
    return INSTANCE_KINDS[name]


def kind_of_image(image: str) -> InstanceKind | None:
    """Return the kind that an image names, ``raysm/process:latest``; None of any other image."""
    # The whole of it: below another registry, or with more behind it, it is the name of a real image.
    named = re.fullmatch(r"raysm/([^:/]+)(:.*)?", image)
    return INSTANCE_KINDS.get(named[1]) if named else None
