"""A choice of instance types: what CreateTrainingJob is sent flows in, the types that it may mean flow out.

``InstancePreferences`` are up to five types in order, of which the service takes the first that its region has;
Describe tells by ``SelectedInstanceType`` which one that was.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

__all__ = ["Resources", "preferred", "selected", "settled"]

Resources: TypeAlias = Mapping[str, Any]
"""What a request, or Describe, has as ResourceConfig."""


def preferred(resources: Resources) -> tuple[tuple[str, int], ...]:
    """Return the types in order, each with its number of instances; empty where there is no choice."""
    return tuple(
        (each["InstanceType"], each.get("InstanceCount") or resources.get("InstanceCount") or 0)
        for each in resources.get("InstancePreferences") or ()
    )


def selected(resources: Resources, instance_type: str, count: int) -> dict[str, Any]:
    """Return what Describe tells once the service has chosen a type."""
    return {**resources, "SelectedInstanceType": instance_type, "SelectedInstanceCount": count}


def settled(resources: Resources) -> Resources:
    """Return the same with one type and its number of instances: that which was chosen, the first of all before."""
    choices = preferred(resources)
    if not choices:
        return resources
    first, count = choices[0]
    return {
        **resources,
        "InstanceType": resources.get("SelectedInstanceType") or first,
        "InstanceCount": resources.get("SelectedInstanceCount") or count,
    }
