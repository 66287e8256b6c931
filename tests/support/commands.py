"""What the instances of a job tell, for tests of the commands that show it."""

import time

from raysm.core.protocol import events

NOW_MS = int(time.time() * 1000) - 60_000  # moto takes no lines of long ago


def tell(remote, job, *told):
    lines = [(NOW_MS + at, events.line(event)) for at, event in enumerate(told)]
    remote.write_log(job.name, "algo-1", lines)
