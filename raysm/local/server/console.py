"""What the server offers beside AWS's API: its status, its end, the interruption of a job, and word of a job's news."""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from raysm import __version__
from raysm.local.server.api_error import ApiError
from raysm.local.server.cores import Cores
from raysm.local.server.operations import Operations

__all__ = ["Console", "PREFIX"]

PREFIX = "/raysm/"
"""How its paths begin; no bucket of S3 may be called ``raysm``."""

# People give the name alone, and mean the one that runs; a program that waits for its job knows the region.
INTERRUPT = re.compile(r"/raysm/jobs/(?:([a-z0-9-]{1,32})/)?([A-Za-z0-9-]{1,63})/interrupt")
END = re.compile(r"/raysm/jobs/([a-z0-9-]{1,32})/([A-Za-z0-9-]{1,63})/end/([0-9]{1,2})")
"""The answer comes when the job ends, or after so many seconds."""
CHANGE = re.compile(r"/raysm/jobs/([a-z0-9-]{1,32})/([A-Za-z0-9-]{1,63})/change/([0-9]{1,12})/([0-9]{1,2})")
"""The answer comes when there is another line or status than those that were counted, or after so many seconds."""


class Console:
    """Answers the server's own paths."""

    def __init__(
        self, operations: Operations, cores: Cores, *, started_s: float, shut_down: Callable[[], None]
    ) -> None:
        """Speak for a server; ``shut_down`` asks it to end."""
        self._operations = operations
        self._cores = cores
        self._started_s = started_s
        self._shut_down = shut_down

    def answer(self, method: str, path: str) -> Mapping[str, Any]:
        """Return the answer.

        Raises:
            ApiError: It is refused.
        """
        if (method, path) == ("GET", "/raysm/status"):
            return {
                "pid": os.getpid(),
                "version": __version__,
                "started_s": self._started_s,
                "running": self._operations.unfinished(),
                "waiting": self._cores.waiting(),
                "cores": self._cores.cores,
            }
        if (method, path) == ("POST", "/raysm/shutdown"):
            self._shut_down()
            return {"ending": True}
        # AWS has no operation for it: there, the service itself takes capacity away.
        match = INTERRUPT.fullmatch(path)
        if method == "POST" and match:
            self._operations.run(match[2], match[1]).interrupt()
            return {"interrupted": match[2]}
        match = END.fullmatch(path)
        if method == "GET" and match:
            return {"ended": self._operations.await_end(match[2], match[1], float(match[3]))}
        match = CHANGE.fullmatch(path)
        if method == "GET" and match:
            return {"changes": self._operations.await_change(match[2], match[1], int(match[3]), float(match[4]))}
        raise ApiError("UnknownOperationException", f"{method} {path} is none of the server's own operations", 404)
