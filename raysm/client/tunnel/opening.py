"""From a job and a port to a tunnel: says what cannot be before anything is opened, and lets the user into the job."""

import logging
import re

from raysm.client.chain import Chain
from raysm.client.description import Description, SecondaryStatus
from raysm.client.remote_debugging import switch_remote_debugging
from raysm.client.tunnel.channel import import_aiohttp
from raysm.client.tunnel.forwarding import Forwarding
from raysm.client.tunnel.session import Sessions, port_document, target_of
from raysm.client.tunnel.tunnel import Tunnel
from raysm.errors import InvalidRequest

__all__ = ["let_in", "open_tunnel"]

HOST = re.compile(r"algo-([1-9]\d{0,3})")
HEAD = "algo-1"

_log = logging.getLogger("raysm")


def open_tunnel(chain: Chain, port: int, *, on: str | None = None, local_port: int = 0) -> Tunnel:
    """Return a tunnel to ``port`` on the loopback of an instance.

    Args:
        chain: The job.
        port: There.
        on: The instance, ``algo-2``; None is the head.
        local_port: Here; 0 is any that is free.

    Raises:
        InvalidRequest: There is no such port or instance, or the job lets nobody in.
        ServiceError: The service refuses the session.
        MissingDependency: aiohttp is not installed.
    """
    for name, number, least in (("port", port, 1), ("local_port", local_port, 0)):
        if not isinstance(number, int) or not least <= number <= 65535:
            raise InvalidRequest(f"{name} must be a number from {least} to 65535, got {number!r}")
    target = let_in(chain, on)
    # Made in the tunnel's own loop, to which its locks and events then belong.
    sessions, document = Sessions(chain.service), port_document(port)
    return Tunnel(lambda: Forwarding(sessions, target, document), local_port=local_port)


def let_in(chain: Chain, on: str | None) -> str:
    """Return the target that is an instance of a job, into which somebody is let from now on.

    Raises:
        InvalidRequest: There is no such instance, or nobody can be let in.
        ServiceError: The account does not let anybody in.
        MissingDependency: aiohttp is not installed.
    """
    # Before anything is switched: who cannot use it is not to open a job for others.
    import_aiohttp()
    description = chain.describe()
    if chain.api.update is None:
        raise InvalidRequest(
            f"{description.name} is a {chain.api.title} job, into which SageMaker lets nobody; a Training job can be "
            "entered"
        )
    # Before and after it no container runs, and so no agent: StartSession would be tried for a minute.
    if description.secondary is not SecondaryStatus.TRAINING:
        raise InvalidRequest(
            f"{description.name} is {description.secondary or description.status}: it can be entered while it is "
            f"{SecondaryStatus.TRAINING}"
        )
    host = _host(description, on)
    if not (description.answer.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"):
        switch_remote_debugging(chain, enabled=True)
        _log.warning("%s lets in who may start SSM sessions from now on (raysm debug --off ends that)", chain.name)
    return target_of(description.name, host)


def _host(description: Description, on: str | None) -> str:
    # By the description, not by what was asked for: it is the service that numbers the instances.
    count = sum(number for _, number in description.instances)
    if on is None:
        # Which group's instance is the head stands in the request, which the service does not tell.
        if len(description.instances) > 1:
            raise InvalidRequest(f"{description.name} has instance groups: name the instance, on='algo-1'")
        return HEAD
    named = HOST.fullmatch(on)
    if named is None or int(named[1]) > count:
        raise InvalidRequest(f"there is no instance {on!r}: {description.name} has {HEAD} to algo-{count}")
    return on
