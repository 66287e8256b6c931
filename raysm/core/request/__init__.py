"""Requests: frozen dataclasses that check their fields, without any I/O."""

from raysm.core.request.cluster import (
    Alternative,
    Cluster,
    Distribution,
    Input,
    InstanceGroup,
    Ports,
)
from raysm.core.request.job import JobRequest
from raysm.core.request.limits import Limits, MetricDefinition, Security
from raysm.core.request.targets import AWS, Local, Target
from raysm.core.request.workload import Workload

__all__ = [
    "AWS",
    "Alternative",
    "Cluster",
    "Distribution",
    "Input",
    "InstanceGroup",
    "JobRequest",
    "Limits",
    "Local",
    "MetricDefinition",
    "Ports",
    "Security",
    "Target",
    "Workload",
]
