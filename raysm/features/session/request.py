"""A cluster that stays up for calls until it is closed, idle too long, or out of budget."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from raysm.core.request.durations import brief_duration
from raysm.core.request.options import optional
from raysm.core.request.workload import OwnCosts, Workload
from raysm.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionWorkload(Workload):
    """Executes calls from clients that connect and disconnect; ``raysm.Session`` makes it.

    Raises:
        InvalidRequest: A time is not above 0, or there is a budget without a price.
    """

    kind: ClassVar[str] = "session"
    is_named_once: ClassVar[bool] = True
    takes_calls: ClassVar[bool] = True
    runner: ClassVar[str] = "raysm.features.session.runner:SessionRunner"
    label: ClassVar[str] = "the session"
    keeps: ClassVar[str] = "what its calls and cells write into the folder $SM_MODEL_DIR"
    # The server also needs aiohttp, which comes with ray[default].
    packages: ClassVar[tuple[str, ...]] = ("cloudpickle", "IPython")
    # The user did not ask for remote debugging: on AWS, calls reach the session through it.
    without_remote_debug: ClassVar[str] = "a session needs it; raysm.submit sends jobs that do not"
    # One call that asks for too much must not end the session, with the results of all other calls.
    fails_on_unmet_requests: ClassVar[bool] = False
    names_waiting_requests: ClassVar[bool] = True
    # Cells run in the driver.
    marks_end: ClassVar[bool] = True
    # The namespace exists only in the memory of the head.
    keeps_state: ClassVar[bool] = False
    # No user code runs before the first call, and the server's imports take as long as forming the
    # cluster.
    prepares_ahead: ClassVar[bool] = True
    ray_variables: ClassVar[Mapping[str, str]] = {
        # The first call then finds a worker that has already started.
        "RAY_enable_worker_prestart": "1",
        # Ray would keep a line that resembles another back for 5 s, until the session may have
        # ended.
        "RAY_DEDUP_LOGS": "0",
    }

    idle_timeout_s: float = optional(1800.0, result=False)
    """Seconds without a call after which the session ends, while a client is attached."""
    idle_timeout_detached_s: float = optional(300.0, result=False)
    """Seconds without a call and without a client after which the session ends."""
    max_cost: float | None = optional(None, result=False)
    """USD that it may cost; None is no limit."""
    max_cost_s: int | None = optional(None, result=False)
    """Seconds after which the service stops the job because of ``max_cost``; the session ends
    before that. None if its own costs, counted from the start of the head, end it."""
    usd_per_hour: float | None = optional(None, result=False)
    """Costs of all instances together; None if unknown."""

    @property
    def own_costs(self) -> OwnCosts | None:
        if self.usd_per_hour is None:
            return None
        idle = brief_duration(self.idle_timeout_s)
        detached = brief_duration(self.idle_timeout_detached_s)
        end = f"it ends after {idle} without a call, or after {detached} without a client"
        return OwnCosts(self.usd_per_hour, self.max_cost, end)

    def __post_init__(self) -> None:
        for name in ("idle_timeout_s", "idle_timeout_detached_s"):
            value = getattr(self, name)
            if not _is_above_0(value):
                raise InvalidRequest(
                    f"Session: {name} must be a number of seconds above 0, got {value!r}"
                )
        for name in ("max_cost", "usd_per_hour"):
            value = getattr(self, name)
            if value is not None and not _is_above_0(value):
                raise InvalidRequest(f"Session: {name} must be a number above 0, got {value!r}")
        if self.max_cost is not None and self.usd_per_hour is None:
            raise InvalidRequest(
                f"Session: max_cost={self.max_cost:g} needs a price, and that of these "
                "instances is unknown; give price_per_hour=… (--price-per-hour), the price of one "
                "instance, or drop max_cost"
            )


def _is_above_0(value: object) -> bool:
    # Comparing a string would raise an error that does not name the option.
    return isinstance(value, (int, float)) and value > 0 and math.isfinite(value)
