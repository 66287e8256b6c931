"""The embedded Batch as the server sees it: requests of its REST flow in, answers flow out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysm.contract.home import Clock
from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.model import check, operation_of
from raysm.local.server.batch.program_operations import ProgramOperations
from raysm.local.server.batch.program_work import ProgramWork
from raysm.local.server.batch.records import BatchJobs
from raysm.local.server.batch.resource_operations import ResourceOperations
from raysm.local.server.batch.resources import Resources
from raysm.local.server.batch.run import BatchRun
from raysm.local.server.batch.tagging import Tagging
from raysm.local.server.moto_services import MotoServices

__all__ = ["BatchService"]


class BatchService:
    """All of it.

    Attributes:
        files: Writes the records of its jobs.
    """

    def __init__(self, home: Path, clock: Clock, moto: MotoServices) -> None:
        """Read what is there; nothing runs before ``listen``."""
        jobs, resources = BatchJobs(home, clock), Resources(home)
        self.files = jobs.files
        self._programs = ProgramWork(home, moto)
        self._run = BatchRun(jobs, resources, self._programs)
        # Each part brings its operations: nobody keeps a list of them.
        self._operations = {
            **ResourceOperations(resources, jobs).operations,
            **ProgramOperations(jobs, resources, self._run).operations,
            **Tagging(jobs, resources).operations,
        }

    def listen(self, url: str) -> None:
        """Say where the server listens: its programs are told."""
        self._programs.listen(url)

    @property
    def running(self) -> bool:
        """Whether a job has not ended."""
        return self._run.running

    def answer(self, method: str, path: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Carry a request out.

        Raises:
            ApiError: It is refused, or nothing of this kind is here.
        """
        operation = operation_of(method, path)
        # Not left to moto: it would answer from queues of its own, in which none of these jobs are.
        if operation not in self._operations:
            message = f"the embedded SageMaker does not emulate {operation or path} of the service batch"
            raise ApiError("NotImplementedException", message)
        # null is what is not there, as AWS reads it.
        parameters = {name: value for name, value in request.items() if value is not None}
        check(operation, parameters)
        return self._operations[operation](parameters, region)

    def shut_down(self) -> None:
        """Begin nothing more, and end the programs."""
        self._run.shut_down()
