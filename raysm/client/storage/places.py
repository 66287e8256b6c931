"""Where the things of a job lie: one place for every prefix, of AWS as of this machine.

::

    ROOT/payloads/PROJECT/JOB/          what travels to the instances; removed once the job has ended
    ROOT/shared/DIGEST/                 what the payloads of a grid's jobs share; removed with the last of them
    ROOT/grid-stores/GRID/              what is known of a grid, for controllers of other machines; never removed
    DATA/PROJECT/JOB/output/model/      the result; output/data/ what else was kept
    DATA/PROJECT/TASK/state/FIRST-JOB/  the state that survives runs: the checkpoint channel
    DATA/PROJECT/TASK/jobs/JOB.json     what is remembered of each job of a task
    ROOT/inputs/DIGEST/                 local data, uploaded once

ROOT is ``s3://BUCKET/raysm``. DATA is the same on AWS; on this machine it is a folder of the server's home, so that
nothing large passes through an S3 that lives in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Places", "places_in", "shared_mark"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """The prefixes of one target, none with a slash at its end."""

    bucket: str
    """Name of the bucket."""
    root: str
    """``s3://BUCKET/raysm``."""
    data: str
    """The same, or ``file:///…`` on this machine."""

    def payload(self, project: str, job: str) -> str:
        """Return the prefix of a job's payload."""
        # Side by side: a lifecycle rule names a prefix, and to tag each object instead takes a right that roles lack.
        return f"{self.root}/payloads/{project}/{job}"

    def shared(self, digest: str) -> str:
        """Return the prefix of what the payloads of many jobs share."""
        # Shared by projects and jobs, so that the same files are not sent again.
        return f"{self.root}/shared/{digest[:40]}"

    def grid(self, name: str) -> str:
        """Return the prefix of the copies of a grid's store."""
        # Not below ROOT/grids, where the checkpoints of rows lie: a grid's name may look like theirs.
        return f"{self.root}/grid-stores/{name}"

    def outputs(self, project: str) -> str:
        """Return what CreateTrainingJob calls S3OutputPath: the service adds ``JOB/output``."""
        return f"{self.data}/{project}"

    def state(self, project: str, task: str, job: str) -> str:
        """Return the checkpoint prefix that begins with ``job``."""
        return f"{self.data}/{project}/{task}/state/{job}"

    def records(self, project: str, task: str) -> str:
        """Return the prefix of what is remembered of a task's jobs."""
        # Small, and yet not below ROOT: on this machine it has to outlive the server, in whose memory that is.
        return f"{self.data}/{project}/{task}/jobs"

    def inputs(self) -> str:
        """Return the prefix of uploaded data."""
        # Of no project: what two of them are given alike is uploaded once.
        return f"{self.root}/inputs"


def shared_mark(shared: str) -> str:
    """Return the object that says that a shared prefix is whole."""
    # Beside the prefix, for all below it is brought to the instances.
    return f"{shared.rstrip('/')}.json"


def places_in(bucket: str, data_root: Callable[[str], str]) -> Places:
    """Return the prefixes of a target.

    Args:
        bucket: Its bucket.
        data_root: Returns where results lie, given where payloads do.
    """
    root = f"s3://{bucket}/raysm"
    return Places(bucket=bucket, root=root, data=data_root(root))
