"""The handle on a job: a future like those of ``concurrent.futures``.

It has status, logs, metrics and stop.

The handle holds no state of the job: another process, on another day, gets all of it by
``raysm.attach(name)``. Modules that only one method needs are imported there, which saves a quarter
of the time of ``import raysm; raysm.submit``.
"""

import contextlib
import functools
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from raysm.core import features
from raysm.core.client.job.chain import Chain, TransientErrors, is_follow_up, next_name
from raysm.core.client.job.description import (
    Description,
    SecondaryStatus,
    Status,
    outputs_of,
    read,
    render_html,
    render_text,
)
from raysm.core.client.plan import chosen_types
from raysm.core.client.service import Service, connect
from raysm.core.client.storage.payload import payload_uri
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.units import deadline
from raysm.core.protocol.job_api import APIS
from raysm.core.protocol.names import PYTHON_TAG
from raysm.core.protocol.result import MANIFEST
from raysm.core.protocol.source import Source
from raysm.core.protocol.store import replacing
from raysm.core.protocol.terminal_text import visible
from raysm.core.request import Input, Target
from raysm.core.request.job import NAME_PATTERN
from raysm.errors import InvalidRequest, JobNotFound, JobStopped, NotDone, RaysmError, ServiceError

if TYPE_CHECKING:
    from raysm.core.client.costs.bill import Bill
    from raysm.core.client.logs.metrics import Metrics
    from raysm.core.client.logs.stream import EventLog, LogLine
    from raysm.core.client.tunnel import Tunnel
    from raysm.core.protocol.events import Event, Progress

OUTPUT_FOLDERS = {"model": "model", "result": "model", "data": "data"}
STATE = "state"
LOGS = "logs"
SHOWN_FILES = 5

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftFiles:
    """Files that a job left."""

    part: str
    """``model``, ``data`` or ``state``: what ``Job.download`` takes."""
    uri: str
    names: list[str]
    """The first names below ``uri``."""


class Job:
    """One job, and its follow-ups if it may run on after ``max_runtime_s``.

    Values that are cheap to get are attributes (``name``, ``status``, ``tags``). Methods read a log
    or wait.

    Attributes:
        service: Its service.
        api: The API of SageMaker that runs it.
        chain: The job and its follow-ups, for callers that read its log by a cursor of their own.
    """

    def __init__(self, chain: Chain, *, source: Source | None = None) -> None:
        """Create the handle on the jobs of ``chain``.

        If this process sent the job, ``source`` is its source: an exception then names a module
        that was left behind.
        """
        self.service = chain.service
        self.api = chain.api
        self.chain = chain
        self._storage = Storage(chain.service)
        self._source = source
        self._callbacks: list[Callable[[Job], object]] = []
        self._lock = threading.Lock()

    # Identity

    @property
    def name(self) -> str:
        """Its name; once a follow-up job has started, the follow-up's."""
        return self.chain.name

    @property
    def arn(self) -> str:
        """Its ARN."""
        return self.chain.known().arn

    @property
    def tags(self) -> dict[str, str]:
        """Its tags, including raysm's."""
        return self.chain.tags

    @property
    def instances(self) -> tuple[tuple[str, int], ...]:
        """Instance type and count of each group; the type is ``local`` if none was chosen."""
        instances = self.chain.known().instances
        # The embedded SageMaker has no types of its own: the tags say what the user asked for.
        return (
            instances if self.service.target.names_own_types else chosen_types(instances, self.tags)
        )

    @property
    def outputs(self) -> str:
        """The prefix of ``model/`` and ``data/``."""
        return outputs_of(self.chain.known())

    # Status

    def describe(self) -> Description:
        """Return the job's description; ask the service unless the job is known to have ended."""
        return self.chain.describe()

    @property
    def status(self) -> Status:
        """Its current status; UNKNOWN if this version of raysm does not know the status."""
        return self.describe().status

    @property
    def secondary_status(self) -> SecondaryStatus:
        """Its current step; NONE for a Processing job."""
        return self.describe().secondary

    def done(self) -> bool:
        """Return True if it has ended, successfully or not, and no follow-up continues it."""
        return self.chain.ended(send=False)

    def running(self) -> bool:
        """Return True if it was sent and has not ended."""
        return not self.done()

    def cancelled(self) -> bool:
        """Return True if it was stopped."""
        return self.done() and self.chain.is_stopped(self.chain.known())

    # Waiting for it

    def wait(self, timeout: float | None = None) -> Status:
        """Wait until it has ended, and send its follow-up jobs meanwhile.

        Ctrl-C ends the waiting, not the job.

        A cell of a notebook shows the job's live card meanwhile.

        Args:
            timeout: Seconds; None waits without limit.

        Returns:
            Its last status.

        Raises:
            InvalidRequest: ``timeout`` is not a number of seconds.
            NotDone: It has not ended within ``timeout``, and goes on; a ``TimeoutError`` too.
            ServiceError: The service refuses to answer, or has been unreachable for minutes.
        """
        deadline_s = deadline(timeout)
        with self._card():
            return self._wait(timeout, deadline_s)

    def _card(self) -> "contextlib.AbstractContextManager[None]":
        # Looked up only in a kernel, because the modules of cards take time to import.
        if not {"ipykernel", "marimo"} & sys.modules.keys():
            return contextlib.nullcontext()
        shown_meanwhile = features.offered("shown_meanwhile")
        if shown_meanwhile is None:
            return contextlib.nullcontext()
        shown: contextlib.AbstractContextManager[None] = shown_meanwhile(self)
        return shown

    def _wait(self, timeout: float | None, deadline_s: float) -> Status:
        errors = TransientErrors(self.service, self.name)
        try:
            for pause_s in self.service.polling.pauses():
                try:
                    if self.chain.ended(send=True):
                        break
                    errors.reset()
                except ServiceError as error:
                    errors.raise_unless_transient(error)
                left_s = deadline_s - time.monotonic()
                # Checked after the question, so that a timeout of 0 asks once.
                if left_s <= 0:
                    raise NotDone(
                        f"the job {self.name} has not ended within {timeout:g} s; it goes on"
                    )
                self.service.connection.wait_for_end(self.name, pause_s, left_s)
            if (complete := features.offered("complete_tracking")) is not None:
                complete(self.chain)
        except KeyboardInterrupt:
            from raysm.core.client.logs.stream import interrupted

            raise interrupted(self.name) from None
        return self.chain.known().status

    def result(
        self,
        timeout: float | None = None,
        *,
        to: str | Path | None = None,
        unverified: bool = False,
    ) -> Any:
        """Wait for the result, and fetch it to this machine.

        Args:
            timeout: Seconds; None waits without limit.
            to: A folder for the result. None leaves the result of a local job where it is, and
                downloads any other to a folder below raysm's home. Not used for a function's value.
            unverified: True unpickles a function's value or exception from a bucket even if the
                job's log has no digest of it, which can run code of anyone who may write there.

        Returns:
            The value of a function. For all other workloads a ``Result``, or None if the job left
            nothing. The folder as a ``Path`` if raysm did not send the job, or if a script wrote a
            ``manifest.json`` of its own.

        Raises:
            InvalidRequest: ``to`` is a file, or a folder with other files than a result; or
                ``timeout`` is not a number.
            NotDone: It has not ended within ``timeout``; a ``TimeoutError`` too.
            JobStopped: It was stopped; a ``concurrent.futures.CancelledError`` too.
            JobFailed: It failed; the message has the reason and the remote traceback.
            Exception: The function's own exception, with a JobFailed as its ``__cause__``.
            ServiceError: The value is not there, or is not the one that the job's log names; it was
                not unpickled.
        """
        from raysm.core.client.results.result import fetch_result, load_value

        # Users of other libraries may expect result(folder).
        deadline(timeout, f"; to choose a folder, write result(to={timeout!r})")
        error = self.exception(timeout, unverified=unverified)
        if error is not None:
            raise error
        # Only a job that returns a value has this tag.
        if PYTHON_TAG in self.tags:
            python = self.tags[PYTHON_TAG]
            return load_value(self.outputs, self.chain, python=python, unverified=unverified)
        cache = self.service.home / "results" / self.name
        to = None if to is None else Path(to)
        return fetch_result(self.outputs, self._storage, job=self.name, to=to, cache=cache)

    def exception(
        self, timeout: float | None = None, *, unverified: bool = False
    ) -> BaseException | None:
        """Wait until it has ended; return its failure's exception, or None if it did not fail.

        Args:
            timeout: Seconds; None waits without limit.
            unverified: As for ``result``.

        Raises:
            NotDone: It has not ended within ``timeout``; a ``TimeoutError`` too.
            JobStopped: It was stopped.
        """
        from raysm.core.client.results.result import (
            ended_by_budget,
            ended_by_service,
            load_exception,
            with_remedy,
        )

        self.wait(timeout)
        description = self.chain.known()
        if description.status is Status.COMPLETED:
            return None
        if self.chain.is_stopped(description):
            message = f"the job {self.name} was stopped{self.left_at_stop()}"
            raise JobStopped(visible(message), job=self.name, reason=description.reason)
        if description.used_budget_usd is not None:
            return ended_by_budget(description)
        if description.status is Status.STOPPED:
            # A Processing job has no secondary status.
            end = description.secondary or SecondaryStatus.MAX_RUNTIME_EXCEEDED
            return ended_by_service(self.name, end)
        error = load_exception(
            self.outputs,
            self.chain,
            python=self.tags.get(PYTHON_TAG),
            reason=description.reason,
            unverified=unverified,
        )
        remedy = self._source.remedy_for(str(error)) if self._source is not None else None
        return error if remedy is None else with_remedy(error, remedy)

    def left_at_stop(self) -> str:
        """Return what a stopped job left and how to fetch it, to end a message, or ""."""
        left = [each.part for each in self.left_files()]
        if not left:
            return ""
        fetch = (
            f"raysm result {self.name} --what {left[0]} --output DIR (in Python: "
            f'job.download("{left[0]}", "DIR"))'
        )
        return f"; it left {' and '.join(left)}; to fetch {left[0]}: {fetch}"

    def left_files(self, most: int = 1) -> list[LeftFiles]:
        """Return what the job left as model, data and state.

        Each comes with its first ``most`` names; empty parts are left out.
        """
        left: list[LeftFiles] = []
        # It has no state, or this user may not list the bucket.
        with contextlib.suppress(RaysmError):
            for part in ("model", "data", STATE):
                uri = f"{self._uri_of(part)}/"
                names = (item.name for item in self._storage.walk(uri))
                # raysm's own files: of data, they only tell why the job ended.
                users = (
                    name for name in names if not (part == "data" and name.startswith("raysm/"))
                )
                if found := list(itertools.islice(users, most)):
                    left.append(LeftFiles(part=part, uri=uri, names=found))
        return left

    def add_done_callback(self, fn: "Callable[[Job], object]") -> None:
        """Call ``fn(job)`` in its own thread when the job has ended.

        If it has ended already, call it in this thread at once.

        Exceptions of ``fn`` are logged and not raised.
        """
        if self.chain.ended(send=False):
            self._call(fn)
            return
        with self._lock:
            self._callbacks.append(fn)
            if len(self._callbacks) == 1:
                # A daemon: a program must not wait at its end for a job that runs for days.
                name = f"raysm watches {self.name}"
                threading.Thread(target=self._watch_for_callbacks, name=name, daemon=True).start()

    def _watch_for_callbacks(self) -> None:
        while True:
            try:
                self.wait()
                break
            except JobNotFound as error:  # the job was deleted
                _log.warning("the job %s is gone: %s", self.name, error)
                break
            except ServiceError as error:  # credentials that have expired may be renewed
                _log.warning("the job %s cannot be watched just now: %s", self.name, error)
                time.sleep(self.service.polling.most_s)
        with self._lock:
            callbacks = self._callbacks
            self._callbacks = []
        # Without the lock: a callback may add another one.
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: "Callable[[Job], object]") -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of the job %s raised", self.name)

    # Stopping it

    def cancel(self) -> bool:
        """Ask the service to stop it; return True if that was still possible.

        User code gets its grace period.
        """
        if self.done():
            return False
        self.chain.is_cancelled = True  # prevents follow-ups
        if (
            self.chain.known().status is not Status.STOPPING
            and not self.chain.known().status.is_terminal
        ):
            try:
                self.service.stop(self.api, self.name)
            except ServiceError:
                if not self.done():
                    self.chain.is_cancelled = False
                    raise
                # It has just ended: the call still cancelled something if a follow-up was due.
                self.chain.is_cancelled = next_name(self.chain.known(), self.tags) is not None
                return self.chain.is_cancelled
        return True

    def stop(self, timeout: float | None = None) -> Status:
        """Stop it, and wait until it has ended.

        Raises:
            NotDone: It has not ended within ``timeout`` seconds; a ``TimeoutError`` too.
        """
        self.cancel()
        return self._wait(timeout, deadline(timeout))

    # Its log

    def lines(
        self, *, follow: bool = False, instance: str | None = None, tail: int | None = None
    ) -> "Iterator[LogLine]":
        """Yield the log lines of all instances, or of one, ordered by time.

        A follow-up's lines come after those of its job.

        Args:
            follow: Go on until the job has ended; its follow-up jobs are sent meanwhile.
            instance: ``algo-2``; None is all.
            tail: Number of last lines to start with, not counting progress and metrics; None starts
                at the first line.

        Raises:
            InvalidRequest: The job has no such instance, or ``tail`` is below 0.
        """
        from raysm.core.client.logs.stream import JobStream, last_lines

        if tail is not None and tail < 0:
            raise InvalidRequest(f"tail must be at least 0, got {tail}")
        # Only following sends follow-up jobs: reading the log must not start one.
        stream = JobStream(self.chain, instance=instance, send=follow)
        if tail is None:
            return stream.follow() if follow else stream.new_lines()
        last = last_lines(stream.new_lines(), tail)
        return itertools.chain(last, stream.follow()) if follow else last

    def logs(
        self,
        *,
        follow: bool = False,
        instance: str | None = None,
        metrics: bool = False,
        tail: int | None = None,
        to: TextIO | None = None,
    ) -> None:
        """Print the log: each line with its instance, and raysm's own events as sentences.

        Args:
            follow: Go on until the job has ended. Ctrl-C ends the following, not the job. After
                five seconds without a line, the logger ``raysm`` says what the job waits for.
            instance: ``algo-2``; None is all.
            metrics: Print the latest metrics too, on a line every few seconds.
            tail: As for ``lines``.
            to: A text stream; None is stdout.

        Raises:
            InvalidRequest: As for ``lines``.
        """
        from raysm.core.client.logs.pending import reasons_told
        from raysm.core.client.logs.rendering import Rendering
        from raysm.core.client.logs.stream import interrupted

        out = sys.stdout if to is None else to
        lines = self.lines(follow=follow, instance=instance, tail=tail)
        # Only all lines of a job tell what it waits for.
        tells = follow and instance is None and tail is None
        say = functools.partial(_log.warning, "%s")
        try:
            quiet_s = self.service.polling.quiet_s
            with (
                reasons_told(self, say, every_s=quiet_s)
                if tells
                else contextlib.nullcontext() as on_line
            ):
                Rendering(metrics=metrics).write(lines, out, on_line)
        except KeyboardInterrupt:
            # Raised again, so that its traceback shows the user's line instead of raysm's
            # internals.
            raise interrupted(self.name) from None

    def events(self, *, follow: bool = False) -> "Iterator[Event]":
        """Yield the events that the job reports: states, progress, metrics."""
        from raysm.core.protocol.events import parse

        return (
            event for line in self.lines(follow=follow) if (event := parse(line.text)) is not None
        )

    def progress(self) -> "dict[str, Progress]":
        """Return the progress of each phase by its name, in the order in which the phases began."""
        return self._event_log.look()[0]

    def metrics(self, *names: str) -> "Metrics":
        """Return the values of metrics ordered by time.

        They are the job's own, and those of its metric definitions.

        The values that a metric definition finds in the log are exact, with the time of their line.
        If the log has none, for example because CloudWatch Logs has deleted it, they are
        CloudWatch's means of each minute.

        Args:
            names: Names, ``"loss"``, or patterns, ``"val/*"``; without any, all metrics.
        """
        from raysm.core.client.logs.metrics import Metrics, found_by_service

        values = self._event_log.look()[1]
        known = {metric.name for metric in values}
        means = list(found_by_service(self.service, self.chain.descriptions(), known))
        ordered = sorted([*values, *means], key=lambda metric: metric.time_s)
        return Metrics(Metrics(ordered).named(*names), {metric.name for metric in means})

    @functools.cached_property
    def _event_log(self) -> "EventLog":
        """One cursor for the handle's life, so that each look reads only the new lines."""
        from raysm.core.client.logs.stream import EventLog, JobStream

        return EventLog(JobStream(self.chain))

    # Its views

    def dashboard(self, *, timeout: float | None = None) -> Any:
        """Return Ray's dashboard of the job at an address of this machine.

        A notebook shows it in a frame.

        ``.url`` is its address. ``.close()`` ends it, and so does the end of a ``with`` block or of
        this process.

        Args:
            timeout: Seconds to wait for a job that has no dashboard yet; None waits without limit.

        Raises:
            InvalidRequest: The job has ended.
            NotDone: There is no dashboard within ``timeout``; a ``TimeoutError`` too.
            MissingDependency: aiohttp is not installed: the extra ``interactive``.
        """
        return features.view("open_dashboard")(self, timeout=timeout)

    def stacks(self, *, native: bool = False) -> Any:
        """Return the line at which each busy Python process of the running job is.

        All instances are asked.

        The job's processes go on meanwhile. ``.sentence`` says who waits where and who is
        elsewhere, ``.groups`` has equal stacks together, and ``print`` shows all of it.

        Args:
            native: Add the frames of C and C++. Each instance needs py-spy, which stops each
                process for up to a second while it reads it.

        Raises:
            InvalidRequest: The job has ended, or its workload has not begun.
            ServiceError: The head did not answer within 30 s, with native frames 60 s.
        """
        return features.view("read_stacks")(self, native=native)

    def plot(self, *names: str, log: bool = False, size: tuple[int, int] = (640, 200)) -> Any:
        """Return charts of metrics on one time axis.

        A notebook shows them; ``.save("loss.png")`` writes them to a file.

        Args:
            names: Names, ``"loss"``, or patterns, ``"val/*"``; without any, all of the job's own.
            log: True makes the y axis logarithmic.
            size: Width and height of a chart in pixels.

        Raises:
            InvalidRequest: The job has metrics, but none with these names.
        """
        return features.view("plot_job")(self, *names, log=log, size=size)

    def watch(self) -> Any:
        """Show a live card of the job below the cell of a notebook until it has ended.

        Later cells run meanwhile.

        Returns:
            A handle: ``.stop()`` ends the drawing, ``.wait()`` waits for the job's last card.

        Raises:
            InvalidRequest: This is not a notebook.
        """
        return features.view("watch")(self)

    def tunnel(self, port: int, on: str | None = None, local_port: int = 0) -> "Tunnel":
        """Open a tunnel to a port of one of its instances.

        Use it as a context manager, or close it.

        Args:
            port: A port on the loopback of the instance, ``8265``.
            on: The instance, ``algo-2``; None is the head.
            local_port: A port on this machine's loopback; 0 is any that is free.

        Returns:
            An object with ``port`` and ``address``, ``127.0.0.1:PORT``, on this machine.

        Raises:
            InvalidRequest: There is no such port or instance, or the job cannot be entered.
        """
        tunnel: Tunnel = features.view("open_tunnel")(
            self.chain, port, on=on, local_port=local_port
        )
        return tunnel

    # Outputs and cost

    def output(self, name: str = "model") -> Input:
        """Wait for the job, and return one of its outputs as an input of the next job.

        Args:
            name: ``model`` (or ``result``), ``data``, ``state`` (its checkpoints, with a folder for
                each instance), or something below them, ``data/train.npy``.

        Raises:
            InvalidRequest: There is no such output; the message names the files that the job left.
            JobFailed: The job did not complete.
        """
        folder, slash, rest = name.partition("/")
        # Checked before the wait, which may take days.
        if folder not in (*OUTPUT_FOLDERS, STATE):
            raise InvalidRequest(
                f"a job leaves 'model' (or 'result'), 'data' and 'state', got {name!r}"
            )
        error = self.exception()
        if error is not None:
            raise error
        uri = f"{self._uri_of(folder)}{slash}{rest}"
        # SageMaker reads all keys with this prefix: without the slash, those of model-2 too.
        uri = f"{uri}/" if uri.startswith("s3://") and not slash else uri
        if not self._storage.has_files(uri):
            folders = {
                part: self._storage.walk(f"{self._uri_of(part)}/") for part in ("model", "data")
            }
            every = (f"{part}/{item.name}" for part, items in folders.items() for item in items)
            left = list(itertools.islice(every, SHOWN_FILES + 1))
            shown = ", ".join([*left[:SHOWN_FILES], *["…"] * (len(left) > SHOWN_FILES)])
            raise InvalidRequest(
                f"{self.name} left no {name}; it left {shown or 'neither model nor data'}"
            )
        return Input(uri)

    def _uri_of(self, output: str) -> str:
        if output != STATE:
            return f"{self.outputs}/{OUTPUT_FOLDERS[output]}"
        config = self.chain.known().answer.get("CheckpointConfig")
        if config is None:
            raise InvalidRequest(
                f"{self.name} has no state: a Processing job, or a workload that keeps none"
            )
        return str(config["S3Uri"]).rstrip("/")

    def download(self, what: str, to: str | Path) -> Path:
        """Wait until it has ended, and copy one of its outputs to a folder of this machine.

        The job may have failed.

        Args:
            what: ``model`` (or ``result``), ``data``, ``state``, or ``logs``: a file for each
                instance.
            to: A new or empty folder.

        Returns:
            The folder.

        Raises:
            InvalidRequest: There is no such output, or the folder has files.
            ServiceError: The job left nothing there.
        """
        folder = Path(to)
        if what not in (*OUTPUT_FOLDERS, STATE, LOGS):
            raise InvalidRequest(
                f"what is 'model' (or 'result'), 'data', 'state' or 'logs', got {what!r}"
            )
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InvalidRequest(f"{folder} is not an empty folder; name another one")
        self.wait()
        stored = [] if what == LOGS else self._storage.folder(self._uri_of(what))
        if what != LOGS and not stored:
            shared = ", or a job that continued with it has removed it" if what == STATE else ""
            raise ServiceError(f"the job {self.name} left no {what}{shared}; nothing was copied")
        folder.mkdir(parents=True, exist_ok=True)
        if what == LOGS:
            for number in range(1, sum(count for _, count in self.instances) + 1):
                with (
                    replacing(folder / f"algo-{number}.log") as beside,
                    beside.open("w", encoding="utf-8") as file,
                ):
                    self.logs(instance=f"algo-{number}", to=file)
        # The manifest last, since it says that the files of a result are complete.
        manifest = [item for item in stored if item.name == MANIFEST]
        self._storage.bring_all([item for item in stored if item.name != MANIFEST], folder)
        self._storage.bring_all(manifest, folder)
        return folder

    def cost(self) -> "Bill | None":
        """Return what it and its follow-ups cost; None on this machine and until they ended."""
        from raysm.core.client.costs.bill import bill_of

        return (
            bill_of(self.chain.descriptions(), self.service.region)
            if self.service.target.is_billed
            else None
        )

    def __repr__(self) -> str:
        return render_text(self._glance(), self.service.target)

    def _repr_html_(self) -> str:
        return render_html(self._glance(), self.service.target)

    def _glance(self) -> Description:
        """Return the job's current or last known description, because a repr must not raise."""
        with contextlib.suppress(RaysmError):
            return replace(self.describe(), instances=self.instances)
        return self.chain.last_known() or Description(
            name=self.name, arn="", api=self.api, status=Status.UNKNOWN
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[str, Target]:
        # The first job's name, which does not change when a follow-up starts.
        return self.chain.first, self.service.target


def attach(name: str, on: Target | Service | None = None) -> Job:
    """Return the handle on an existing job, which any process may have sent.

    Args:
        name: The job's full name, as ``raysm jobs`` lists it.
        on: Its target; None is the embedded SageMaker of this machine, with all the regions that it
            emulates.

    Raises:
        JobNotFound: There is neither a Training nor a Processing job of that name.
    """
    service = connect(on)
    return (
        attach_in([service], name)
        if isinstance(on, Service)
        else attach_in_any_region(service, name)
    )


def attach_in_any_region(service: Service, name: str) -> Job:
    """Return the handle on a job.

    A job of this machine may be in another region, where a grid's jobs may be.
    """
    return attach_in(itertools.chain([service], service.in_other_regions()), name)


def attach_in(services: Iterable[Service], name: str) -> Job:
    """Return the handle on the job of this name in the first of ``services`` that has one."""
    if not NAME_PATTERN.fullmatch(name):
        # The service would answer with its regular expression.
        raise JobNotFound(
            f"no job is named {name!r}: a name has 1 to 63 letters, digits and inner hyphens; "
            "raysm jobs lists the jobs"
        )
    where = ""
    for service in services:
        where = where or service.target.describe()
        for api in APIS:
            try:
                description = read(api, service.describe(api, name))
            except JobNotFound:
                continue
            # The tags of a follow-up name the first job, whose lines and metrics come before its
            # own.
            tags = service.tags(description.arn) if is_follow_up(name) else None
            return Job(Chain(name, service=service, api=api, description=description, tags=tags))
    raise JobNotFound(f"there is no job {name!r} {where}; raysm jobs lists the full names")


def token_of(job: Job) -> str:
    # From Describe's answer, because a follow-up uses the first job's payload.
    uri = payload_uri(job.describe().answer)
    content = None if uri is None else Storage(job.service).read(f"{uri.rstrip('/')}/token")
    if content is None:
        raise JobNotFound(f"the payload of {job.name} was deleted, and its token with it")
    return content.decode()
