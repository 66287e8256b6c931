"""WHAT is asked for: frozen dataclasses, checked as they are made, without any I/O."""

from raysm.request.channels import Distribution, Input
from raysm.request.cluster import Cluster, InstanceGroup
from raysm.request.job import JobRequest
from raysm.request.ports import Ports
from raysm.request.workload import Script, Similarity, Workload

__all__ = [
    "Cluster",
    "Distribution",
    "Input",
    "InstanceGroup",
    "JobRequest",
    "Ports",
    "Script",
    "Similarity",
    "Workload",
]
