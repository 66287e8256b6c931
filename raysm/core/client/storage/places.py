"""The prefixes of everything that belongs to jobs, the same for AWS and this machine.

::

    ROOT/payloads/PROJECT/JOB/          what is sent to the instances; deleted after the job's end
    ROOT/shared/DIGEST/                 what a grid's payloads share; deleted with the last of them
    ROOT/grid-stores/GRID-RUN/          a grid's state while a Batch job runs it; its request stays
    DATA/PROJECT/JOB/output/model/      the result; output/data/ holds other outputs
    DATA/PROJECT/TASK/state/FIRST-JOB/  the state that survives runs: the checkpoint channel
    DATA/PROJECT/TASK/jobs/JOB.json     the record of each job of a task
    ROOT/inputs/DIGEST/                 local data, uploaded once

ROOT is ``s3://BUCKET/raysm``. DATA is the same on AWS; on this machine it is a folder of the
server's home, so that large things do not pass through an S3 that lives in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    bucket: str
    root: str
    data: str
    """The same, or ``file:///…`` on this machine."""

    def payload(self, project: str, job: str) -> str:
        # All payloads have one prefix for lifecycle rules: tagging objects takes a right that roles
        # lack.
        return f"{self.root}/payloads/{project}/{job}"

    def shared(self, digest: str) -> str:
        return f"{self.root}/shared/{digest[:40]}"

    def grid(self, name: str) -> str:
        # Not below ROOT/grids, which has the checkpoints of rows: a grid's name may look like
        # theirs.
        return f"{self.root}/grid-stores/{name}"

    def outputs(self, project: str) -> str:
        return f"{self.data}/{project}"

    def state(self, project: str, task: str, job: str) -> str:
        return f"{self.data}/{project}/{task}/state/{job}"

    def records(self, project: str, task: str) -> str:
        return f"{self.data}/{project}/{task}/jobs"

    def inputs(self) -> str:
        return f"{self.root}/inputs"


def shared_mark(shared: str) -> str:
    # Beside the prefix, since everything below it is copied to the instances.
    return f"{shared.rstrip('/')}.json"


def places_in(bucket: str, data_root: Callable[[str], str]) -> Places:
    """Return the prefixes of a target.

    ``data_root`` returns the prefix of results, given that of payloads.
    """
    root = f"s3://{bucket}/raysm"
    return Places(bucket=bucket, root=root, data=data_root(root))
