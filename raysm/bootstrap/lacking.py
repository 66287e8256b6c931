"""Which packages an image lacks: found out at the beginning of each instance, most of which have them all.

What flows in is a payload, what flows out is what ``packages`` is to bring, which is imported only then.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field

from raysm.contract.packages import NEEDS, ray_will_do, without_credentials
from raysm.contract.payload import Payload

__all__ = ["Wanted", "installed_version", "lacking"]

MOST_NAMED = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What has to be installed before this instance can begin."""

    requirements: tuple[str, ...]
    """What the user requires."""
    needs: tuple[str, ...] = ()
    """What raysm needs, and the image has not."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Of some needs, what the image has instead: ``this image has Ray 2.56.0``."""

    def __bool__(self) -> bool:
        return bool(self.requirements or self.needs)

    def __str__(self) -> str:
        """Return it for people; of many the first, raysm's needs before all."""
        needs = [f"{text} ({self.remarks[text]})" if text in self.remarks else text for text in self.needs]
        named = [*needs, *map(without_credentials, self.requirements)]
        # A failure's reason is cut at a thousand characters, and the cause stands behind this.
        more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
        return ", ".join([*named[:MOST_NAMED], *more])


def lacking(payload: Payload) -> Wanted:
    """Return what this image lacks for the payload's request."""
    modules = ("ray", *payload.request.packages)
    # A kind of the user's may need what raysm has no version for: by the module's name, as most packages are called.
    # Looked for, not imported: torch alone takes seconds.
    needs = [NEEDS.get(module, module) for module in modules if importlib.util.find_spec(module) is None]
    remarks = {}
    own_ray = installed_version("ray")
    if NEEDS["ray"] not in needs and (own_ray is None or not ray_will_do(own_ray)):
        needs.insert(0, NEEDS["ray"])
        remarks[NEEDS["ray"]] = f"this image has Ray {own_ray or 'of an unknown version'}"
    lines = [line.strip() for line in payload.request.requirements]
    required = tuple(line for line in lines if line and not line.startswith("#"))
    return Wanted(requirements=required, needs=tuple(needs), remarks=remarks)


def installed_version(name: str) -> str | None:
    """Return the version of a package that this Python has, without importing it; None where it says none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
