"""The handle on a job: a future in the manner of ``concurrent.futures``, with status, logs, metrics and stop.

The handle holds no state of the job: another process, on another day, gets all of it by ``raysm.attach(name)``. Modules
that only one method needs are imported there, which saves a quarter of ``import raysm; raysm.submit``.
"""

import contextlib
import functools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysm.client.job import text as job_repr
from raysm.client.job.chain import Chain, Patience, is_follow_up, next_name
from raysm.client.job.description import Description, SecondaryStatus, Status, outputs_of, read
from raysm.client.job.log import Callbacks, JobLog, JobViews
from raysm.client.plan import chosen_types
from raysm.client.service import Service, connect
from raysm.client.storage.payload import payload_uri
from raysm.client.storage.s3 import Storage
from raysm.client.units import deadline
from raysm.contract.job_api import APIS
from raysm.contract.names import PYTHON_TAG
from raysm.contract.source import Source
from raysm.errors import InvalidRequest, JobNotFound, JobStopped, NotDone, RaysmError, ServiceError
from raysm.request import Input, Target
from raysm.request.job import NAME_PATTERN

if TYPE_CHECKING:
    from raysm.client.costs.bill import Bill
    from raysm.client.tunnel.tunnel import Tunnel

__all__ = ["Job", "attach", "token_of"]


OUTPUT_FOLDERS = {"model": "model", "result": "model", "data": "data"}
"""What a job leaves, by the name under which the next one asks for it."""


class Job(JobLog, JobViews):
    """One job, and its follow-ups where it may run on after ``max_runtime_s``.

    What a glance costs is an attribute (``name``, ``status``, ``tags``); what reads a log or waits is a method.

    Attributes:
        service: Where it is.
        api: Which of SageMaker's APIs runs it.
        chain: The job and its follow-ups, for callers that read its log by a cursor of their own.
    """

    def __init__(self, chain: Chain, *, source: Source | None = None) -> None:
        """Hold the job that is the last of ``chain``, which the service knows.

        If it was sent from here, its ``source`` is known too: the exception then names a module that was left behind.
        """
        self.service = chain.service
        self.api = chain.api
        self.chain = chain
        self._storage = Storage(chain.service)
        self._source = source
        self._callbacks = Callbacks(chain.name, wait=self.wait, pause_s=chain.service.polling.most_s)

    # What it is

    @property
    def name(self) -> str:
        """Its name; once a follow-up job goes on with it, that one's."""
        return self.chain.name

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.chain.known().arn

    @property
    def tags(self) -> dict[str, str]:
        """Its tags, raysm's among them."""
        return self.chain.tags

    @property
    def instances(self) -> tuple[tuple[str, int], ...]:
        """Instance type and count of each group; the type is ``local`` if none was chosen."""
        instances = self.chain.known().instances
        # This machine has no types: what the user asked for stands in the tags.
        return instances if self.service.target.names_own_types else chosen_types(instances, self.tags)

    @property
    def outputs(self) -> str:
        """Prefix below which ``model/`` and ``data/`` lie."""
        return outputs_of(self.chain.known())

    # How it is

    def describe(self) -> Description:
        """Ask the service how the job is; one that has ended is not asked again."""
        return self.chain.describe()

    @property
    def status(self) -> Status:
        """How it is now; a status that raysm does not know is UNKNOWN."""
        return self.describe().status

    @property
    def secondary_status(self) -> SecondaryStatus:
        """What it does just now; of a Processing job NONE."""
        return self.describe().secondary

    def done(self) -> bool:
        """Whether it has ended, in whatever way, and no follow-up job goes on with it."""
        return self.chain.ended(send=False)

    def running(self) -> bool:
        """Whether it has been sent and has not ended."""
        return not self.done()

    def cancelled(self) -> bool:
        """Whether it was stopped."""
        return self.done() and self.chain.is_stopped(self.chain.known())

    # Waiting for it

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it has ended; send its follow-up jobs meanwhile. Ctrl-C ends the waiting, not the job.

        Args:
            timeout: Seconds; None is without end.

        Returns:
            How it ended.

        Raises:
            InvalidRequest: ``timeout`` is no number of seconds.
            NotDone: A TimeoutError: it has not ended within ``timeout``; it goes on.
            ServiceError: The service refuses to tell, or has been away for minutes.
        """
        try:
            return self._wait(timeout)
        except KeyboardInterrupt:
            from raysm.client.logs.stream import interrupted

            raise interrupted(self.name) from None

    def _wait(self, timeout: float | None) -> Status:
        deadline_s = deadline(timeout)
        patience = Patience(self.service, self.name)
        for pause_s in self.service.polling.pauses():
            try:
                if self.chain.ended(send=True):
                    from raysm.client.logs.tracking import complete

                    complete(self.chain)
                    return self.chain.known().status
                patience.heard()
            except ServiceError as error:
                patience.bear(error)
            left_s = deadline_s - time.monotonic()
            # Behind the question: with a timeout of 0 the job is asked for once.
            if left_s <= 0:
                raise NotDone(f"the job {self.name} has not ended within {timeout:g} s; it goes on")
            self.service.wait_for_end(self.name, pause_s, left_s)
        raise AssertionError("pauses never end")

    def result(self, timeout: float | None = None, *, to: str | Path | None = None) -> Any:
        """Wait for the result and bring it here.

        Args:
            timeout: Seconds; None is without end.
            to: A folder for what the job left; None is where it lies already, or a folder below raysm's home. A
                function's value needs none.

        Returns:
            Of a function its value; of all else a ``Result``, None where nothing was left. Of a job of others, or of a
            script that wrote a ``manifest.json`` of its own, the folder.

        Raises:
            InvalidRequest: ``to`` is a file, or a folder of something that is no result; or ``timeout`` is no number.
            NotDone: A TimeoutError: it has not ended within ``timeout``.
            JobStopped: It was stopped; a ``concurrent.futures.CancelledError`` too.
            JobFailed: It failed; the message has the reason and the remote traceback.
            Exception: What the function raised, with such a JobFailed as its ``__cause__``.
        """
        from raysm.client.results.result import brought, value

        # Users of other libraries know result(folder).
        deadline(timeout, f"; a folder for the result is named: result(to={timeout!r})")
        error = self.exception(timeout)
        if error is not None:
            raise error
        # Only a job that returns a value has this tag; what its pickle needs stands in it.
        if PYTHON_TAG in self.tags:
            return value(self.outputs, self._storage, job=self.name, python=self.tags[PYTHON_TAG])
        cache = self.service.home / "results" / self.name
        return brought(self.outputs, self._storage, job=self.name, to=None if to is None else Path(to), cache=cache)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, and return why it failed, None where it did not.

        Raises:
            NotDone: A TimeoutError: it has not ended within ``timeout``.
            JobStopped: It was stopped.
        """
        from raysm.client.results.result import ended_by_service, raised, with_remedy

        self.wait(timeout)
        description = self.chain.known()
        if description.status is Status.COMPLETED:
            return None
        if self.chain.is_stopped(description):
            raise JobStopped(f"the job {self.name} was stopped", job=self.name, reason=description.reason)
        if description.status is Status.STOPPED:
            return ended_by_service(self.name, description.secondary)
        error = raised(
            self.outputs, self._storage, job=self.name, python=self.tags.get(PYTHON_TAG), reason=description.reason
        )
        remedy = self._source.remedy_for(str(error)) if self._source is not None else None
        return error if remedy is None else with_remedy(error, remedy)

    def add_done_callback(self, fn: "Callable[[Job], object]") -> None:
        """Call ``fn(job)`` once it has ended, in a thread of its own; at once where it has ended already.

        What ``fn`` raises is logged and goes no further.
        """
        callback = functools.partial(fn, self)
        if self.chain.ended(send=False):
            self._callbacks.call(callback)
        else:
            self._callbacks.add(callback)

    # Ending it

    def cancel(self) -> bool:
        """Ask the service to stop it; return whether that was still possible. User code gets its grace."""
        if self.done():
            return False
        self.chain.is_cancelled = True  # no follow-up goes on with it, however it ends
        if self.chain.known().status is not Status.STOPPING and not self.chain.known().status.is_terminal:
            try:
                self.service.stop(self.api, self.name)
            except ServiceError:
                if not self.done():
                    self.chain.is_cancelled = False
                    raise
                # It ended meanwhile: with a follow-up to come, that one is what was cancelled.
                self.chain.is_cancelled = next_name(self.chain.known(), self.tags) is not None
                return self.chain.is_cancelled
        return True

    def stop(self, timeout: float | None = None) -> Status:
        """Stop it, and wait until it has ended.

        Raises:
            NotDone: A TimeoutError: it has not ended within ``timeout`` seconds.
        """
        self.cancel()
        return self.wait(timeout)

    # The way in

    def tunnel(self, port: int, on: str | None = None, local_port: int = 0) -> "Tunnel":
        """Open a way to a port of one of its instances; use it as a context manager, or close it.

        Args:
            port: On the loopback of the instance, ``8265``.
            on: The instance, ``algo-2``; None is the head.
            local_port: On this machine's loopback; 0 is any that is free.

        Returns:
            Something with ``port`` and ``address``, ``127.0.0.1:PORT``, on this machine.

        Raises:
            InvalidRequest: There is no such port or instance, or the job cannot be entered.
        """
        # Imported here, since submitting does not need it.
        from raysm.client.tunnel.opening import open_tunnel

        return open_tunnel(self.chain, port, on=on, local_port=local_port)

    # What it leaves

    def output(self, name: str = "model") -> Input:
        """Wait for the job, and return what it left as an input of the next one.

        Args:
            name: ``model`` (or ``result``), ``data``, or something below them, ``data/train.npy``.

        Raises:
            InvalidRequest: There is no such output.
            JobFailed: The job did not complete.
        """
        folder, slash, rest = name.partition("/")
        # Checked before the wait, which may take days. Checkpoints are no output: resume= continues from them.
        if folder not in OUTPUT_FOLDERS:
            raise InvalidRequest(f"a job leaves 'model' (or 'result') and 'data', got {name!r}")
        error = self.exception()
        if error is not None:
            raise error
        uri = f"{self.outputs}/{OUTPUT_FOLDERS[folder]}{slash}{rest}"
        # SageMaker reads all keys with this prefix: without the slash, those of model-2 too.
        return Input(f"{uri}/" if uri.startswith("s3://") and not slash else uri)

    def cost(self) -> "Bill | None":
        """Return what it and its follow-ups have cost; None on this machine, and until they have ended."""
        from raysm.client.costs.bill import bill_of

        return bill_of(self.chain.descriptions(), self.service.region) if self.service.target.is_billed else None

    # For people

    def __repr__(self) -> str:
        return job_repr.text(self._glance(), self.service.target)

    def _repr_html_(self) -> str:
        return job_repr.html(self._glance(), self.service.target)

    def _glance(self) -> Description:
        """Return how the job is, or how it was when the service was last heard: a repr never raises."""
        with contextlib.suppress(RaysmError):
            return replace(self.describe(), instances=self.instances)
        return self.chain.last_known() or Description(name=self.name, arn="", api=self.api, status=Status.UNKNOWN)

    def __eq__(self, other: object) -> bool:
        # By the first job's name: the handle stays the same when it goes over to a follow-up.
        return isinstance(other, Job) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, Target]:
        return self.chain.first, self.service.target


def attach(name: str, on: Target | Service | None = None) -> Job:
    """Return the handle on a job that was sent by whatever process on whatever day.

    Args:
        name: The job's name.
        on: Where it is; None is the embedded SageMaker of this machine.

    Raises:
        JobNotFound: There is neither a Training nor a Processing job of that name.
    """
    service = connect(on)
    if not NAME_PATTERN.fullmatch(name):
        # The service would answer with its regular expression.
        raise JobNotFound(
            f"no job is named {name!r}: a name has 1 to 63 letters, digits and inner hyphens; raysm jobs lists the jobs"
        )
    # A name does not tell of which API a job is.
    for api in APIS:
        try:
            description = read(api, service.describe(api, name))
        except JobNotFound:
            continue
        # The tags of a follow-up name the first job, whose lines and metrics come before its own.
        tags = service.tags(description.arn) if is_follow_up(name) else None
        return Job(Chain(name, service=service, api=api, description=description, tags=tags))
    raise JobNotFound(f"there is no job {name!r} {service.target.describe()}; raysm jobs lists those that there are")


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
