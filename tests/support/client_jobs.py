"""Jobs that tests of the client send, and how a service of a script lets them end."""

import hashlib
import time

from raysm.core.client.storage.s3 import Storage
from raysm.core.client.submit import submit
from raysm.core.protocol.events import Digest, line
from raysm.core.protocol.result import Manifest
from raysm.core.request import Cluster, Limits
from raysm.features.script.request import Script

NOW_MS = int(time.time() * 1000) - 60_000  # moto takes no lines of long ago
M5 = Cluster("ml.m5.large", count=2)
EXCEEDED = {"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxRuntimeExceeded"}
COMPLETED = {"TrainingJobStatus": "Completed", "SecondaryStatus": "Completed"}


def leave(remote, job, name, content):
    Storage(remote.service).write(f"{job.outputs}/{name}", content)


def log_digest(remote, job, name, content, *, host="algo-1", at_ms=NOW_MS):
    """Write the digest of a pickle into the log, as a job's driver does."""
    digest = Digest(file=name, sha256=hashlib.sha256(content).hexdigest(), time_s=at_ms / 1000)
    remote.write_log(job.name, host, [(at_ms, line(digest))])


def leave_pickle(remote, job, folder, name, content):
    """Leave a pickle as a job does."""
    leave(remote, job, f"{folder}/{name}", content)
    log_digest(remote, job, name, content)


def long_job(remote, script, restarts=2):
    remote.sagemaker.script = [[EXCEEDED] for _ in range(restarts)]
    return submit(
        Script(str(script)), cluster=M5, on=remote.service, limits=Limits(max_restarts=restarts)
    )


def manifest(*files, **fields):
    facts = {
        "job": "job",
        "workload": {},
        "inputs": {},
        "versions": {},
        "instances": ("algo-1",),
        "phases_s": {},
    }
    return Manifest(files=files, **facts | fields)
