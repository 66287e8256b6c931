"""The handle on a job: a future in the manner of ``concurrent.futures``, with status, logs, metrics and stop beside.

Nothing of a job lives in the handle: another process, on another day, has all of it by ``raysm.attach(name)``.
"""

import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from raysm.client import card, restart
from raysm.client.description import Description, SecondaryStatus, Status, outputs_of, read
from raysm.client.logs import LogLine, LogReader
from raysm.client.metrics import found_by_service
from raysm.client.plan import API, chosen_types
from raysm.client.result import Result, fetch, raised, value
from raysm.client.result_folder import manifest_of
from raysm.client.service import Service, connect
from raysm.client.storage import Storage
from raysm.client.tags import PYTHON, WORKLOAD
from raysm.contract.events import Event, Metric, Progress, parse
from raysm.contract.source import Source
from raysm.errors import InvalidRequest, JobFailed, JobNotFound, JobStopped, NotDone, RaysmError, ServiceError
from raysm.request import AWS, Input, PickledFunction, Target

__all__ = ["Job", "attach"]

OUTPUTS = {"model": "model", "result": "model", "data": "data"}
"""What a job leaves, by the name under which the next one asks for it."""

FOLLOW_S = 5.0
"""Seconds between two looks at a log, at most: whoever follows it is looking at it."""

_log = logging.getLogger("raysm")


class Job:
    """One job, and its follow-ups where it may run on after ``max_runtime_s``.

    Attributes:
        service: Where it is.
        api: The operation that made it.
    """

    def __init__(
        self,
        name: str,
        *,
        service: Service,
        api: API,
        description: Description | None = None,
        tags: Mapping[str, str] | None = None,
        source: Source | None = None,
    ) -> None:
        """Hold the job ``name``, which the service knows; ``description`` and ``tags`` save asking for them.

        Who sent it here knows its ``source`` too: of a module that was left behind, the exception then says so.
        """
        self.service = service
        self.api = api
        self._chain = [name]  # the first job and its follow-ups, as far as it has gone over to them
        self._cancelled = False
        self._storage = Storage(service)
        self._last = description
        self._tags = None if tags is None else dict(tags)
        self._source = source
        self._lock = threading.RLock()
        self._callbacks: list[Callable[[Job], object]] = []
        self._watcher: threading.Thread | None = None

    # What it is

    @property
    def name(self) -> str:
        """Its name; once a follow-up job goes on with it, that one's."""
        return self._name

    @property
    def _name(self) -> str:
        return self._chain[-1]

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self._known().arn

    @property
    def tags(self) -> dict[str, str]:
        """Its tags, raysm's among them."""
        if self._tags is None:
            self._tags = self.service.tags(self.arn)
        return dict(self._tags)

    @property
    def instances(self) -> tuple[tuple[str, int], ...]:
        """Instance type and count of each group; the type is ``local`` where nobody chose one."""
        found = self._known().instances
        return found if isinstance(self.service.target, AWS) else chosen_types(found, self.tags)

    @property
    def outputs(self) -> str:
        """Prefix below which ``model/`` and ``data/`` lie."""
        return outputs_of(self._known())

    # How it is

    def describe(self) -> Description:
        """Ask the service how the job is; one that has ended is not asked again."""
        with self._lock:
            if self._last is None or not self._last.status.is_terminal:
                self._last = read(self.api, self.service.describe(self.api, self._name))
            return self._last

    def _known(self) -> Description:
        return self._last or self.describe()

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
        return self._ended(send=False)

    def running(self) -> bool:
        """Whether it has been sent and has not ended."""
        return not self.done()

    def cancelled(self) -> bool:
        """Whether somebody stopped it."""
        return self.done() and self._is_stopped(self._known())

    def _is_stopped(self, found: Description) -> bool:
        limits = (SecondaryStatus.MAX_RUNTIME_EXCEEDED, SecondaryStatus.MAX_WAIT_EXCEEDED)
        return found.status is Status.STOPPED and (self._cancelled or found.secondary not in limits)

    def _ended(self, *, send: bool) -> bool:
        """Whether nothing more comes; go over to the follow-up job, and with ``send`` start it if nobody has."""
        while True:
            found = self.describe()
            if not found.status.is_terminal:
                return False
            following = restart.next_name(found, self.tags) if found.exceeded_runtime else None
            if following is None:
                return True
            if not self._go_over(found, following, send and not self._cancelled):
                return self._cancelled  # who cancelled it between two jobs wants no further one

    def _go_over(self, found: Description, following: str, send: bool) -> bool:
        """Go over to the follow-up job; with ``send`` create it where it is not there. Return whether it is there."""
        try:
            description = read(self.api, self.service.describe(self.api, following))
        except JobNotFound:
            if not send:
                return False
            try:
                self.service.create(restart.follow_up(found, self.tags))
                _log.info("the job %s ran as long as it may; %s goes on", found.name, following)
            except ServiceError as error:
                if error.code != "ResourceInUse":  # another process that watches it was quicker
                    raise
            try:
                description = read(self.api, self.service.describe(self.api, following))
            except JobNotFound:
                return False
        with self._lock:
            if self._name == found.name:  # else another thread went over meanwhile
                self._chain.append(following)
                self._last, self._tags = description, None
        if self._cancelled and not description.status.is_terminal:
            try:
                self.service.stop(self.api, following)  # another process sent it meanwhile
            except ServiceError as error:  # it may have ended just now
                _log.warning("the job %s went on after it was cancelled, and cannot be stopped: %s", following, error)
        return True

    # Waiting for it

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it has ended; send its follow-up jobs meanwhile. Ctrl-C ends the waiting, not the job.

        Args:
            timeout: Seconds; None is without end.

        Returns:
            How it ended.

        Raises:
            NotDone: A TimeoutError: it has not ended within ``timeout``; it goes on.
            ServiceError: The service refuses to tell, or has been away for minutes.
        """
        deadline_s = None if timeout is None else time.monotonic() + timeout
        heard_s = time.monotonic()
        for pause_s in self.service.pace.pauses():
            try:
                if self._ended(send=True):
                    return self._known().status
                heard_s = time.monotonic()
            except ServiceError as error:
                self._bear(error, heard_s)
            left_s = math.inf if deadline_s is None else deadline_s - time.monotonic()
            if left_s <= 0:
                raise NotDone(f"the job {self._name} has not ended within {timeout:g} s; it goes on")
            self.service.await_end(self._name, pause_s, left_s)
        raise AssertionError("pauses never end")

    def _bear(self, error: ServiceError, heard_s: float) -> None:
        """Raise ``error`` unless it may pass: a network that is away for a while is no reason to give a job up.

        Args:
            error: What was just caught.
            heard_s: When the service was last heard, by the monotonic clock.
        """
        if not error.is_transient or time.monotonic() - heard_s > self.service.pace.patience_s:
            raise error
        _log.warning("the job %s cannot be watched just now: %s", self._name, error)

    def result(self, timeout: float | None = None, *, to: str | Path | None = None) -> Any:
        """Wait for the result and bring it here.

        Args:
            timeout: Seconds; None is without end.
            to: A folder for what the job left; None is where it lies already, or a folder below raysm's home. A
                function's value needs none.

        Returns:
            Of Similarity a ``Result``; of a script its folder, None where it left nothing; of a function its value.

        Raises:
            InvalidRequest: ``to`` is a file, or a folder of something that is no result.
            NotDone: A TimeoutError: it has not ended within ``timeout``.
            JobStopped: Somebody stopped it; a ``concurrent.futures.CancelledError`` too.
            JobFailed: It failed; the message has the reason and the remote traceback.
            Exception: What the function raised, with such a JobFailed as its ``__cause__``.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        if self.tags.get(WORKLOAD) == PickledFunction.kind:
            return value(self.outputs, self._storage, job=self._name, python=self.tags.get(PYTHON, ""))
        cache = self.service.home / "results" / self._name
        folder = fetch(self.outputs, self._storage, job=self._name, to=None if to is None else Path(to), cache=cache)
        manifest = None if folder is None else manifest_of(folder)
        return folder if folder is None or manifest is None else Result(folder, manifest)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end, and return why it failed, None where it did not.

        Raises:
            NotDone: A TimeoutError: it has not ended within ``timeout``.
            JobStopped: Somebody stopped it.
        """
        self.wait(timeout)
        found = self._known()
        if found.status is Status.COMPLETED:
            return None
        if self._is_stopped(found):
            raise JobStopped(f"the job {self._name} was stopped", job=self._name, reason=found.reason)
        if found.status is Status.STOPPED:
            return JobFailed(
                f"the job {self._name} was ended by the service: {found.secondary}; give it more time (limits), or let "
                "it go on in follow-up jobs (limits.max_restarts)",
                job=self._name,
                reason=found.secondary,
            )
        error = raised(self.outputs, self._storage, job=self._name, python=self.tags.get(PYTHON), reason=found.reason)
        remedy = self._source.remedy_for(str(error)) if self._source is not None else None
        return error if remedy is None else _with_remedy(error, remedy)

    def add_done_callback(self, fn: "Callable[[Job], object]") -> None:
        """Call ``fn(job)`` once it has ended, in a thread of its own; at once where it has ended already.

        What ``fn`` raises is logged and goes no further.
        """
        if not self._ended(send=False):
            with self._lock:
                self._callbacks.append(fn)
                if self._watcher is None:
                    self._watcher = threading.Thread(
                        target=self._watch, name=f"raysm watches {self._name}", daemon=True
                    )
                    self._watcher.start()
            return
        self._call(fn)

    def _watch(self) -> None:
        while True:
            try:
                self.wait()
                break
            except JobNotFound as error:  # it was deleted: nothing more will ever be heard of it
                _log.warning("the job %s is gone: %s", self._name, error)
                break
            except ServiceError as error:  # credentials that have expired are renewed
                _log.warning("the job %s cannot be watched just now: %s", self._name, error)
                time.sleep(self.service.pace.most_s)
        with self._lock:
            callbacks, self._callbacks, self._watcher = self._callbacks, [], None
        for fn in callbacks:
            self._call(fn)

    def _call(self, fn: "Callable[[Job], object]") -> None:
        try:
            fn(self)
        except Exception:
            _log.exception("a callback of the job %s raised", self._name)

    # Ending it

    def cancel(self) -> bool:
        """Ask the service to stop it; return whether that was still possible. User code gets its grace."""
        if self.done():
            return False
        self._cancelled = True  # no follow-up goes on with it, however it ends
        if self._known().status is not Status.STOPPING and not self._known().status.is_terminal:
            try:
                self.service.stop(self.api, self._name)
            except ServiceError:
                if not self.done():
                    self._cancelled = False
                    raise
                # It ended meanwhile: with a follow-up to come, that one is what was cancelled.
                self._cancelled = restart.next_name(self._known(), self.tags) is not None
                return self._cancelled
        return True

    def stop(self, timeout: float | None = None) -> Status:
        """Stop it, and wait until it has ended.

        Raises:
            NotDone: A TimeoutError: it has not ended within ``timeout`` seconds.
        """
        self.cancel()
        return self.wait(timeout)

    # What it says

    def lines(self, *, follow: bool = False, instance: str | None = None) -> Iterator[LogLine]:
        """Yield the log lines of all instances, or of one, in the order of their times.

        Args:
            follow: Go on until the job has ended; its follow-up jobs are sent meanwhile.
            instance: ``algo-2``.
        """
        at = len(self._chain) - 1
        reader = LogReader(self.service, self.api, self._chain[at], instance)
        pauses, heard_s = self.service.pace.pauses(), time.monotonic()
        late_s: float | None = None
        while True:
            ended = came = False
            try:
                ended = not follow or self._ended(send=True)
                for line in reader.new_lines():
                    came = True
                    yield line
                heard_s = time.monotonic()
            except ServiceError as error:
                if not follow:
                    raise
                self._bear(error, heard_s)
                time.sleep(min(next(pauses), FOLLOW_S))
                continue
            if not follow:
                return
            if at + 1 < len(self._chain):  # it may have gone over to several: each is read to its end
                at += 1
                reader = LogReader(self.service, self.api, self._chain[at], instance)
                continue
            if ended:
                late_s = time.monotonic() + self._late_s() if late_s is None else late_s
                if not came and time.monotonic() >= late_s:
                    return
            if came:
                pauses = self.service.pace.pauses()
            time.sleep(min(next(pauses), FOLLOW_S))

    def _late_s(self) -> float:
        """Return how long to wait for the last lines: those of a job that ended long ago are there."""
        ended = self._known().ended
        late_s = self.service.pace.late_s
        return late_s if ended is None else max(0.0, late_s - (time.time() - ended.timestamp()))

    def logs(self, *, follow: bool = False, instance: str | None = None, to: TextIO | None = None) -> None:
        """Print what ``lines`` yields, each with its instance; raysm's own events as words.

        Args:
            follow: Go on until the job has ended. Ctrl-C ends the following, not the job.
            instance: ``algo-2``; None is all.
            to: A text stream; None is stdout.
        """
        out = sys.stdout if to is None else to
        for line in self.lines(follow=follow, instance=instance):
            text = card.said(line.host, line.text)
            if text is not None:
                out.write(f"{text}\n")
                out.flush()

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """Yield what the job says of itself: states, progress, metrics."""
        for line in self.lines(follow=follow):
            event = parse(line.text)
            if event is not None:
                yield event

    def progress(self) -> dict[str, Progress]:
        """Return how far each phase is, by its name, in the order in which they began."""
        return {event.phase: event for event in self.events() if isinstance(event, Progress)}

    def metrics(self) -> list[Metric]:
        """Return the values of all metrics by time: the job's own, and those that the service found in its log."""
        found = [event for event in self.events() if isinstance(event, Metric)]
        found += found_by_service(self.service, self.describe())
        return sorted(found, key=lambda metric: metric.time_s)

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
        if folder not in OUTPUTS:
            raise InvalidRequest(f"a job leaves 'model' (or 'result') and 'data', got {name!r}")
        error = self.exception()
        if error is not None:
            raise error
        uri = f"{self.outputs}/{OUTPUTS[folder]}{slash}{rest}"
        return Input(uri + "/" if uri.startswith("s3://") and not rest else uri)

    # For people

    def __repr__(self) -> str:
        return card.text(self._glance(), self.service.target)

    def _repr_html_(self) -> str:
        return card.html(self._glance(), self.service.target)

    def _glance(self) -> Description:
        """Return how the job is, or how it was when the service was last heard: a repr never raises."""
        with contextlib.suppress(RaysmError):
            return replace(self.describe(), instances=self.instances)
        return self._last or Description(name=self._name, arn="", api=self.api, status=Status.UNKNOWN)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self._name, self.service.target) == (other._name, other.service.target)

    def __hash__(self) -> int:
        return hash((type(self), self.service.target))


def _with_remedy(error: BaseException, remedy: str) -> BaseException:
    if not isinstance(error, JobFailed):
        error.add_note(remedy)
        return error
    text = f"{error}\n{remedy}"
    return JobFailed(text, job=error.job, reason=error.reason, remote_traceback=error.remote_traceback)


def attach(name: str, on: Target | Service | None = None) -> Job:
    """Return the handle on a job that was sent by whatever process on whatever day.

    Args:
        name: The job's name.
        on: Where it is; None is the embedded SageMaker of this machine.

    Raises:
        JobNotFound: There is neither a Training nor a Processing job of that name.
    """
    service = connect(on)
    apis: tuple[API, ...] = ("CreateTrainingJob", "CreateProcessingJob")
    for api in apis:
        try:
            found = read(api, service.describe(api, name))
        except JobNotFound:
            continue
        return Job(name, service=service, api=api, description=found)
    raise JobNotFound(f"there is no job {name!r} {card.place(service.target)}; raysm jobs lists those that there are")
