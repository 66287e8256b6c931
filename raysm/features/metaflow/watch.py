"""Stops the job of a task whose flow has ended: ``python -m raysm.features.metaflow.watch``.

If one task of a flow fails, Metaflow kills the others by SIGKILL, and they can stop nothing. This
process outlives its task, whose end closes its stdin. While the flow's process is there, a retry
may take the job; once that has ended too, nobody waits for the job any more.
"""

import contextlib
import json
import os
import sys
import time
from typing import Any, cast

POLL_S = 1.0
STOP_S = 300.0
"""Seconds for which the service may be unreachable."""


def main(job: str, on: str, flow_pid: int) -> None:
    sys.stdin.read()
    while _is_there(flow_pid):
        time.sleep(POLL_S)
    # Only now, since most watches end before, and each import takes memory for a job's time.
    from raysm.core.client.job.handle import attach
    from raysm.core.client.service import connect
    from raysm.core.request import Target
    from raysm.core.request.codec import from_json
    from raysm.errors import ServiceError

    content = json.loads(on)
    target = None if content is None else from_json(cast(Any, Target), content, "on")
    deadline_s = time.monotonic() + STOP_S
    while time.monotonic() < deadline_s:
        with contextlib.suppress(ServiceError):
            attach(job, connect(target)).cancel()
            return
        time.sleep(POLL_S)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process has the number
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
