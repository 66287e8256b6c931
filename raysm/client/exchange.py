"""Every call of the client as it was made and answered, for whoever keeps a record of it.

What flows in is a boto3 client and a function, what flows out are Exchanges, also of what boto3 sends by itself: the
parts of a large object. botocore's own events tell of them, https://docs.aws.amazon.com/boto3/latest/guide/events.html.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

__all__ = ["Exchange", "Observer", "observe"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One call, after all of its attempts."""

    service: str
    """As boto3 names it, ``service-quotas``."""
    operation: str
    """As the API names it, ``ListServiceQuotas``."""
    parameters: Mapping[str, Any]
    """What was asked."""
    answer: Mapping[str, Any] = field(default_factory=dict)
    """What was answered, a refusal too; nothing where no answer came."""
    status: int = 0
    """Of HTTP; 0 where no answer came."""
    obstacle: str = ""
    """Why no answer came."""

    @property
    def call(self) -> str:
        """Say which operation of which service it was, ``s3:PutObject``."""
        return f"{self.service}:{self.operation}"


Observer: TypeAlias = Callable[[Exchange], None]
"""Takes each exchange, in the thread that made the call; what it raises, the call raises."""

KEY = "raysm-exchange"
"""Where a call keeps what was asked until it is answered: botocore hands one context from event to event."""


def observe(client: Any, observer: Observer) -> None:
    """Tell ``observer`` of every call of a client from now on; a second time does nothing."""
    events = client.meta.events

    def ask(params: Mapping[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        # A copy: what botocore does to the parameters next (before-parameter-build), it does in place.
        context[KEY] = (model.service_model.service_name, model.name, dict(params))

    def answer(context: dict[str, Any], parsed: Any = None, http_response: Any = None, **more: Any) -> None:
        service, operation, parameters = context[KEY]
        status = 0 if http_response is None else http_response.status_code
        obstacle = "" if more.get("exception") is None else str(more["exception"])
        observer(
            Exchange(
                service=service,
                operation=operation,
                parameters=parameters,
                answer=parsed or {},
                status=status,
                obstacle=obstacle,
            )
        )

    # A refusal is an answer too, told as after-call; after-call-error is a call to which none came.
    for event, handler in (("provide-client-params", ask), ("after-call", answer), ("after-call-error", answer)):
        events.register(event, handler, unique_id=f"{KEY}-{event}")
