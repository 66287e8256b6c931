"""Run one job on instances of this machine, as the service would, from its specification to its outcome.

Below ``root``:

    algo-1/ml/           the instance's /opt/ml
    algo-1/home, tmp …   its own things
    logs/algo-1.log      all that it wrote

What is known of the service, and what is not: a job is Failed as soon as one container exits with something else than
0, and containers that are stopped get SIGTERM, then SIGKILL after 120 s. How soon the others are stopped once one has
failed is not documented. Here they have a time (``Patience``) to notice and to end by themselves, so that the head's
own words about the loss become the failure reason; then they get SIGTERM, and later SIGKILL. One that is frozen hears
neither the others nor SIGTERM and is killed at once.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from raysm.contract.paths import Paths
from raysm.contract.store import files_below
from raysm.errors import InvalidRequest, RaysmError
from raysm.local import channels
from raysm.local.channels import Originals, relink
from raysm.local.checkpoints import CheckpointSync
from raysm.local.instances import Instance, InstanceSpec, Site, open_site
from raysm.local.job_spec import Channel, JobSpec, Patience
from raysm.local.logs import LogPump
from raysm.local.outcome import Exits, Outcome
from raysm.local.preparing import Preparation
from raysm.local.scenario import Scenario

__all__ = ["LocalJob"]

WATCH_S = 2.0
"""How often to look, beside the moments at which something happens."""


class LocalJob:
    """One job on this machine; a context manager, at whose end nothing of it runs any more.

    Attributes:
        spec: What is run.
        hosts: All instances in the order of their numbers.
        head: The instance that is the head.
    """

    def __init__(
        self,
        spec: JobSpec,
        *,
        root: Path,
        kind: str = "process",
        image: str | None = None,
        on_line: Callable[[str, str], None] = lambda host, line: None,
        on_end: Callable[[], None] = lambda: None,
        patience: Patience | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        """Keep what is to be done; nothing starts before ``start``.

        Args:
            spec: The job.
            root: A folder for everything of the job; the caller makes and removes it.
            kind: Of instances.
            image: What instances of kind docker run.
            on_line: Called with host and line for each line that an instance writes, in one thread.
            on_end: Called when ``wait`` would return at once.
            patience: How long instances that are to end may take.
            scenario: What AWS would do to it.

        Raises:
            InvalidRequest: The scenario speaks of a host that the job does not have.
        """
        self.spec = spec
        self.head = spec.first
        self.hosts = spec.hosts
        self._scenario = scenario or Scenario()
        absent = self._scenario.capacity.absent
        # A host that is none would be absent without anybody's notice.
        unknown = sorted(set(absent) - set(self.hosts))
        if unknown:
            raise InvalidRequest(f"capacity.absent={unknown[0]!r} is none of the hosts {', '.join(self.hosts)}")
        self._present = tuple(host for host in self.hosts if host not in absent)
        self._root = root.resolve()
        self._kind = kind
        self._image = image
        self._patience = patience or Patience()
        self._on_line = on_line
        self._on_end = on_end

        self._site: Site | None = None
        self._logs: LogPump | None = None
        self._sync: CheckpointSync | None = None
        self._originals = Originals(())
        self._instances: dict[str, Instance] = {}
        self._started_s = 0.0
        self._stop = threading.Event()
        self._changed = threading.Event()
        self._watcher: threading.Thread | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()

    def paths(self, host: str) -> Paths:
        """Return where the files of ``host`` lie on this machine."""
        return Paths(self._root / host / "ml", self.spec.api)

    def log(self, host: str) -> Path:
        """Return the file with all that ``host`` wrote."""
        return self._root / "logs" / f"{host}.log"

    @property
    def model_dir(self) -> Path:
        """The head's ``/opt/ml/model``."""
        return self.paths(self.head).model

    @property
    def instances(self) -> Mapping[str, Instance]:
        """The instances that were started, by host."""
        return self._instances

    def start(self, launching: Callable[[], None] = lambda: None) -> None:
        """Bring the channels and files, and start all instances.

        Args:
            launching: Called when everything lies in its place, and the instances are started next.

        Raises:
            InvalidRequest: The request cannot be run here; nothing was started.
            RaysmError: An instance could not be started; none is left.
        """
        if self._site is not None:
            raise RaysmError(f"the job {self.spec.name} was started before; make another LocalJob")
        # Before a folder or a network is made: what is missing is said while there is nothing to clean up.
        entries = channels.resolve(self.spec)
        self._site = open_site(self._kind, self._image)
        try:
            self._site.check(self._scenario)
            preparation = Preparation(
                spec=self.spec,
                root=self._root,
                present=self._present,
                site=self._site,
                entries=entries,
                scenario=self._scenario,
            )
            if not self._site.protects:
                self._watch_originals(preparation.linked())
            (self._root / "logs").mkdir(exist_ok=True)
            logs = self._logs = LogPump(self._on_line)
            specs = preparation.write(lambda host: logs.open(host, self.log(host)))
            self._restore([spec.base for spec in specs])
            launching()
            self._launch(self._site, specs)
        except BaseException:
            self.close()
            raise
        self._watcher = threading.Thread(target=self._watch, name=f"job {self.spec.name}", daemon=True)
        self._watcher.start()

    def _watch_originals(self, linked: list[Channel]) -> None:
        self._originals = Originals(linked)
        for channel in linked:
            size = sum(path.stat().st_size for path in files_below(channel.source))
            self._on_line(
                self.head,
                f"raysm: the channel {channel.name!r} ({size / 1e9:.1f} GB) is linked, not copied: what changes one of "
                f"its files in place changes the original in {channel.source}",
            )

    def _restore(self, bases: list[Path]) -> None:
        checkpoints = self.spec.checkpoints
        if checkpoints is not None:
            self._sync = CheckpointSync(checkpoints.store, [base / checkpoints.target for base in bases])
            # Before any instance: a program looks for its checkpoint when it starts, and SageMaker brings none later.
            self._sync.restore()

    def _launch(self, site: Site, specs: list[InstanceSpec]) -> None:
        assert self._logs is not None
        self._instances = {instance.host: instance for instance in site.start(specs)}
        # Now that the instances have them: a pipe with an end here would never tell that its log is over.
        self._logs.release()
        self._started_s = time.time()
        if self._sync is not None:
            self._sync.follow(self._scenario.checkpoints.sync_s)
        for instance in self._instances.values():
            instance.exited.add_done_callback(lambda exited: self._changed.set())

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """Return how the job ended, once nothing of it runs and all its lines were passed on.

        Raises:
            TimeoutError: It has not ended within ``timeout_s``.
            BaseException: What ``on_line`` raised.
        """
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"the job {self.spec.name} has not ended within {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def stop(self) -> None:
        """Ask the job to end: SIGTERM to all instances now, SIGKILL after the grace; ``wait`` returns how it ended."""
        self._stop.set()
        self._changed.set()

    def kill(self, host: str, number: int | None = None) -> None:
        """Signal the main process of one instance, with SIGKILL if ``number`` is None: a fault."""
        self._instances[host].signal(signal.SIGKILL if number is None else number)

    def close(self) -> None:
        """End whatever of the job still runs, at once; harmless when repeated."""
        for instance in self._instances.values():
            # First: the watcher returns when all are gone, and what it says last goes through the logs.
            instance.end()
        if self._watcher is not None:
            self._changed.set()
            self._watcher.join()
        if self._site is not None:
            self._site.close()
        # After the instances: a log ends with the last process that writes to it.
        if self._logs is not None:
            self._logs.close()

    def __enter__(self) -> "LocalJob":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _watch(self) -> None:
        """See the instances to their end; runs in a thread."""
        try:
            self._outcome = self._follow()
        except BaseException as error:
            self._error = error
        finally:
            # In any case: whoever waits would wait for ever for a watcher that failed.
            self._ended.set()
            self._on_end()

    def _follow(self) -> Outcome:
        exits = Exits(spec=self.spec)
        asked = stopped = terminated = False
        settle_at = kill_at = float("inf")
        while len(exits.codes) < len(self._instances):
            # With a timeout: a stop and an exit set it, but nothing does at the moments of SIGTERM and SIGKILL.
            self._changed.wait(min(WATCH_S, max(0.0, min(settle_at, kill_at) - time.monotonic())))
            self._changed.clear()
            for host, instance in self._instances.items():
                if host not in exits.codes and instance.exited.done():
                    exits.add(host, instance.exited.result(), time.time())
                    self._cut_checkpoints(host, exits.codes[host])
            now = time.monotonic()
            # A stop that comes when all have ended changes nothing: the job is what they made of it.
            if self._stop.is_set() and not asked and len(exits.codes) < len(self._instances):
                asked = True
                # Behind a failure it hastens the end alone: what came first is what the job ended by.
                stopped = not exits.failed()
                settle_at = now
            if exits.failed():
                self._kill_frozen(exits)
                settle_at = min(settle_at, now + self._patience.settle_s)
            if not terminated and now >= settle_at:
                terminated = True
                # SageMaker's 120 s are a stopped job's; those that outlive a failure get what saving their work takes.
                kill_at = now + (self._patience.stop_grace_s if stopped else self._patience.kill_s)
                self._signal_all(signal.SIGTERM)
            if terminated:
                settle_at = float("inf")  # else every later exit that counts would send SIGTERM again
            if now >= kill_at:
                kill_at = float("inf")
                self._signal_all(signal.SIGKILL)
        self._settle_links()
        self._say_last(self._keep_checkpoints())
        return exits.outcome(self.paths, stopped=stopped, started_s=self._started_s, ended_s=time.time())

    def _kill_frozen(self, exits: Exits) -> None:
        """Kill instances whose main process is stopped (SIGSTOP): they hear no SIGTERM and can save nothing."""
        for host, instance in self._instances.items():
            if host not in exits.codes:
                with contextlib.suppress(psutil.Error):  # it has just ended
                    if psutil.Process(instance.pid).status() == psutil.STATUS_STOPPED:
                        instance.kill()

    def _cut_checkpoints(self, host: str, code: int) -> None:
        checkpoints = self.spec.checkpoints
        if self._sync is None or checkpoints is None:
            return
        if self._scenario.checkpoints.cut_at_sigkill and code == 128 + signal.SIGKILL:
            self._sync.leave(self.paths(host).base / checkpoints.target)

    def _settle_links(self) -> None:
        """Let what an instance has linked to its ``/opt/ml`` be found among its checkpoints and outputs."""
        assert self._site is not None
        for host in self._instances:
            base = self.paths(host).base
            inside = self._site.base_inside(base)
            if inside != base:
                relink(base, inside)

    def _keep_checkpoints(self) -> str | None:
        """Take checkpoints over for the last time; return what is to be said if some could not be.

        The job does not fail by it: its model is there, and may be worth more than the way to it.
        """
        try:
            if self._sync is not None:
                self._sync.close()
        except Exception as error:
            return f"raysm: not all checkpoints were kept: {type(error).__name__}: {error}"
        return None

    def _signal_all(self, number: int) -> None:
        for instance in self._instances.values():
            instance.signal(number)

    def _say_last(self, unkept: str | None) -> None:
        """End the log, with what is to be said of what the job left."""
        assert self._logs is not None
        self._logs.close()  # before anything is added: it belongs behind the last line of the instances
        if self._logs.error is not None:
            raise self._logs.error
        for line in [*([] if unkept is None else [unkept]), *self._originals.complaints()]:
            self._on_line(self.head, line)
