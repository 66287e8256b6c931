"""Requests: frozen dataclasses that check their fields, without any I/O."""

from raysm.request.cluster import Cluster, Distribution, Input, InstanceGroup, Ports
from raysm.request.job import JobRequest
from raysm.request.limits import Limits, MetricDefinition, Security
from raysm.request.programs import PickledFunction, Script, TorchScript, TrainLoop
from raysm.request.session import SessionWorkload
from raysm.request.similarity import Similarity
from raysm.request.targets import AWS, Local, Target
from raysm.request.workload import Workload

__all__ = [
    "AWS",
    "Cluster",
    "Distribution",
    "Input",
    "InstanceGroup",
    "JobRequest",
    "Limits",
    "Local",
    "MetricDefinition",
    "PickledFunction",
    "Ports",
    "Script",
    "Security",
    "SessionWorkload",
    "Similarity",
    "Target",
    "TorchScript",
    "TrainLoop",
    "Workload",
]
