"""The ports that a cluster listens on: fixed, so that security groups can name them, and settable."""

from dataclasses import dataclass, fields

from raysm.errors import InvalidRequest

__all__ = ["Ports"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ports:
    """TCP ports, the same numbers on every instance; 0 lets the system choose (not for those of the head).

    Raises:
        InvalidRequest: A port is out of range, or two are the same.
    """

    control: int = 6380
    """Head: raysm's control channel."""
    gcs: int = 6379
    """Head: Ray's GCS, the port of ``RAY_ADDRESS``."""
    dashboard: int = 8265
    """Head: the Ray dashboard and the Jobs API."""
    node_manager: int = 6381
    """Every instance: the raylet."""
    object_manager: int = 6382
    """Every instance: the transfer of objects."""
    runtime_env_agent: int = 6383
    """Every instance: Ray's agent for runtime environments."""
    dashboard_agent: int = 6384
    """Every instance: the dashboard's agent, HTTP."""
    dashboard_agent_grpc: int = 6385
    """Every instance: the dashboard's agent, gRPC."""
    metrics_export: int = 6386
    """Every instance: metrics, where they are collected."""
    # Ray's own range; the fixed ports lie outside, or a worker could have one before its owner.
    worker_min: int = 10002
    """Every instance: first port of the workers' range; 0 lets the system choose them all."""
    worker_max: int = 19999
    """Every instance: last port of the workers' range."""

    def __post_init__(self) -> None:
        """Check the range of each port, and that no two are the same."""
        seen: dict[int, str] = {}
        for item in fields(self):
            port = getattr(self, item.name)
            if not 0 <= port <= 65535:
                raise InvalidRequest(f"Ports: {item.name} must be 0 to 65535, got {port}")
            # 0 lets the system choose, which never chooses the same twice.
            if port and port in seen:
                raise InvalidRequest(f"Ports: {item.name} and {seen[port]} are both {port}")
            seen[port] = item.name
        for name in ("control", "gcs", "dashboard"):
            if getattr(self, name) == 0:
                raise InvalidRequest(f"Ports: {name} must be a fixed port: the other instances have to find it")
        if self.worker_max < self.worker_min:
            raise InvalidRequest(f"Ports: worker_max={self.worker_max} lies below worker_min={self.worker_min}")
