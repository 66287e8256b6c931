"""Where the things of a job lie: one place for every prefix, of AWS as of this machine.

::

    ROOT/PROJECT/JOB/payload/           what travels to the instances
    DATA/PROJECT/JOB/output/model/      the result; output/data/ what else was kept
    DATA/PROJECT/TASK/state/FIRST-JOB/  the state that survives runs: the checkpoint channel
    DATA/PROJECT/TASK/jobs/JOB.json     what is remembered of each job of a task
    ROOT/inputs/DIGEST/                 local data, uploaded once

ROOT is ``s3://BUCKET/raysm``. DATA is the same on AWS; on this machine it is a folder of the server's home, so that
nothing large passes through an S3 that lives in memory.
"""

from dataclasses import dataclass
from pathlib import Path

from raysm.request import Local, Target

__all__ = ["LOCAL_BUCKET", "Places", "default_bucket", "places_of"]

LOCAL_BUCKET = "raysm-local"
"""The bucket of the embedded SageMaker."""


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
        return f"{self.root}/{project}/{job}/payload"

    def outputs(self, project: str) -> str:
        """Return what CreateTrainingJob calls S3OutputPath: the service adds ``JOB/output``."""
        return f"{self.data}/{project}"

    def state(self, project: str, task: str, job: str) -> str:
        """Return the checkpoint prefix that begins with ``job``."""
        return f"{self.data}/{project}/{task}/state/{job}"

    def records(self, project: str, task: str) -> str:
        """Return the prefix of what is remembered of a task's jobs."""
        return f"{self.data}/{project}/{task}/jobs"

    def inputs(self) -> str:
        """Return the prefix of uploaded data."""
        return f"{self.root}/inputs"


def default_bucket(region: str, account: str) -> str:
    """Return the bucket that the SageMaker SDK uses too."""
    return f"sagemaker-{region}-{account}"


def places_of(target: Target, *, bucket: str, home: Path | None) -> Places:
    """Return the prefixes of ``target``.

    Args:
        target: Where the job goes.
        bucket: Its bucket.
        home: The root folder of the embedded SageMaker; of no use for AWS.
    """
    root = f"s3://{bucket}/raysm"
    if isinstance(target, Local):
        assert home is not None
        return Places(bucket=bucket, root=root, data=(home.absolute() / "data").as_uri())
    return Places(bucket=bucket, root=root, data=root)
