"""The token of a job, for whoever may read its payload: a job flows in, the secret flows out, and goes nowhere else."""

from raysm.client.job import Job
from raysm.client.payload_place import payload_uri
from raysm.client.storage import Storage
from raysm.errors import JobNotFound

__all__ = ["token_of"]


def token_of(job: Job) -> str:
    """Return the token that the job's Ray asks for.

    Raises:
        JobNotFound: The payload is not there any more: it goes once the job has ended.
        ServiceError: It may not be read.
    """
    # By what the service says of the job: a follow-up travels with the first job's payload.
    uri = payload_uri(job.describe().answer)
    content = None if uri is None else Storage(job.service).read(f"{uri.rstrip('/')}/token")
    if content is None:
        raise JobNotFound(f"the payload of {job.name} is not there any more, nor is its token")
    return content.decode()
