"""Run one job on instances of this machine, as the service would.

It begins with the job's specification and ends with its outcome. Below ``root``:

    algo-1/ml/           the instance's /opt/ml
    algo-1/home, tmp …   its home and temporary folders
    logs/algo-1.log      all that it wrote

SageMaker documents that a job is Failed as soon as one container exits with another code than 0,
and 120 s from SIGTERM to SIGKILL for containers that are stopped, but not how soon the others are
stopped after a failure. Here they have some time (``GracePeriods``) to end by themselves, so that
the head can write the failure reason.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from raysm.core.protocol.names import NOT_KEPT
from raysm.core.protocol.paths import DEFAULT_BASE, Paths
from raysm.core.protocol.result import SERVICE_REASON
from raysm.core.protocol.store import files_below
from raysm.errors import RaysmError
from raysm.local.checkpoints import CheckpointSync
from raysm.local.instance_files import InstanceFiles
from raysm.local.instances import Instance, InstanceSpec, Site, open_site
from raysm.local.job_spec import GracePeriods, JobSpec
from raysm.local.logs import LogPump
from raysm.local.preparation import Preparation, find_opt_ml, relink, resolve_channels
from raysm.local.scenario import Scenario

WATCH_S = 2.0

Status = Literal["Completed", "Failed", "Stopped"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    status: Status
    failure_reason: str | None
    """The head's failure file, else a description of the instance that failed first."""
    exit_code: int
    """The exit code of the instance that failed first; 0 if none failed."""
    exit_codes: Mapping[str, int]
    """By host; 128 + signal if the main process was killed."""
    started_s: float
    ended_s: float
    exited_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class Exits:
    spec: JobSpec
    codes: dict[str, int] = field(default_factory=dict)
    at_s: dict[str, float] = field(default_factory=dict)

    def add(self, host: str, code: int, at_s: float) -> None:
        self.codes[host] = code
        self.at_s[host] = at_s

    def failed(self) -> list[str]:
        # A job may be allowed to lose instances other than the head.
        allowed = self.spec.losses_allowed
        hosts = (
            host
            for host, code in self.codes.items()
            if code != 0 and (host == self.spec.first or not allowed)
        )
        return sorted(hosts, key=self.at_s.__getitem__)

    def outcome(
        self, reason: Callable[[str], str], *, stopped: bool, started_s: float, ended_s: float
    ) -> Outcome:
        failed = [] if stopped else self.failed()
        status: Status = "Failed" if failed else "Completed"
        return Outcome(
            status="Stopped" if stopped else status,
            failure_reason=self._reason(failed, reason) if failed else None,
            exit_code=self.codes[failed[0]] if failed else 0,
            exit_codes=dict(self.codes),
            started_s=started_s,
            ended_s=ended_s,
            exited_s=dict(self.at_s),
        )

    def _reason(self, failed: list[str], reason: Callable[[str], str]) -> str:
        # The head first: it also knows which other instances were lost.
        for host in dict.fromkeys([self.spec.first, *failed]):
            text = reason(host)
            if text:
                return text if host == self.spec.first else f"{host}: {text}"[:SERVICE_REASON]
        return f"{failed[0]}: {_describe(self.codes[failed[0]])}"


def _describe(code: int) -> str:
    if code == 128 + signal.SIGTERM:
        # The first exit, so the signal did not come from this service.
        return "ended by a SIGTERM that the service did not send"
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(code - 128).name}"
    return f"exit code {code}"


class LocalJob:
    """One job on this machine; a context manager that ends everything that still runs."""

    def __init__(
        self,
        spec: JobSpec,
        *,
        root: Path,
        kind: str = "process",
        image: str | None = None,
        on_line: Callable[[str, str], None] = lambda host, line: None,
        on_end: Callable[[], None] = lambda: None,
        grace: GracePeriods | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        """Prepare a job; nothing starts before ``start``.

        The caller makes and removes the folder ``root``. ``on_line(host, line)`` is called for one
        line at a time, and ``on_end`` when ``wait`` would return at once. Raises InvalidRequest if
        the scenario names a host that the job does not have.
        """
        self.spec = spec
        self.head = spec.first
        self.hosts = spec.hosts
        self._scenario = scenario or Scenario()
        self._root = root.resolve()
        self._kind = kind
        self._image = image
        self._grace = grace or GracePeriods()
        self._on_line = on_line
        self._on_end = on_end

        self._site: Site | None = None
        self._opt_ml_is_own = False
        self._logs: LogPump | None = None
        self._sync: CheckpointSync | None = None
        self.checkpoint_error: str | None = None
        """Why the last upload of checkpoints failed; set at the job's end."""
        self._instances: dict[str, Instance] = {}
        self._started_s = self._started_monotonic_s = 0.0
        self._stop = threading.Event()
        self._changed = threading.Event()
        self._watcher: threading.Thread | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()

    def paths(self, host: str) -> Paths:
        return Paths(self._root / host / "ml", self.spec.api)

    def files(self, host: str) -> InstanceFiles:
        assert self._site is not None
        return InstanceFiles(base=self.paths(host).base, sees_machine=self._site.sees_machine)

    def reason(self, host: str) -> str:
        """Return what a program of ``host`` has written into its failure file.

        SageMaker takes 1,024 characters.
        """
        return self.files(host).read_text(self.paths(host).failure, SERVICE_REASON)

    def log(self, host: str) -> Path:
        return self._root / "logs" / f"{host}.log"

    @property
    def model_dir(self) -> Path:
        return self.paths(self.head).model

    @property
    def instances(self) -> Mapping[str, Instance]:
        return self._instances

    def start(self, launching: Callable[[], None] = lambda: None) -> None:
        """Prepare channels and files, call ``launching``, and start all instances.

        If this fails, none is left.
        """
        if self._site is not None:
            raise RaysmError(f"the job {self.spec.name} was started before; make another LocalJob")
        # First, while there is nothing to clean up.
        entries = resolve_channels(self.spec)
        self._site = open_site(self._kind, self._image)
        try:
            self._site.check(self._scenario)
            preparation = Preparation(
                spec=self.spec,
                root=self._root,
                site=self._site,
                entries=entries,
                scenario=self._scenario,
            )
            if not self._site.protects:
                for channel in preparation.list_linked():
                    size = sum(path.stat().st_size for path in files_below(channel.source))
                    self._on_line(
                        self.head,
                        f"raysm: the channel {channel.name!r} ({size / 1e9:.1f} GB) is linked, not "
                        "copied: a program that changes one of its files in place changes the "
                        f"original in {channel.source}",
                    )
            (self._root / "logs").mkdir(exist_ok=True)
            logs = self._logs = LogPump(self._on_line)
            specs = preparation.write(lambda host: logs.open(host, self.log(host)))
            self._restore([spec.host for spec in specs])
            self._warn_of_opt_ml(specs)
            launching()
            self._launch(self._site, specs)
        except BaseException:
            self.close()
            raise
        self._watcher = threading.Thread(
            target=self._watch, name=f"job {self.spec.name}", daemon=True
        )
        self._watcher.start()

    def _warn_of_opt_ml(self, specs: list[InstanceSpec]) -> None:
        assert self._site is not None
        reason = self._site.foreign_opt_ml(specs)
        if reason is None:
            self._opt_ml_is_own = True
            return
        for place in find_opt_ml(self.paths(self.head)):
            self._on_line(
                self.head,
                f"raysm: {place} names {DEFAULT_BASE}, which here is this machine's own folder and "
                f"not the job's ({reason}): use $SM_CHANNEL_NAME, $SM_MODEL_DIR or $RAYSM_STATE, "
                "or instances of kind docker",
            )

    def _restore(self, hosts: list[str]) -> None:
        checkpoints = self.spec.checkpoints
        if checkpoints is not None:
            folders = {
                self.paths(host).base / checkpoints.target: self.files(host) for host in hosts
            }
            self._sync = CheckpointSync(checkpoints.store, folders)
            # Before any instance starts, because a program looks for its checkpoint first.
            self._sync.restore()

    def _launch(self, site: Site, specs: list[InstanceSpec]) -> None:
        assert self._logs is not None
        self._instances = {instance.host: instance for instance in site.start(specs)}
        # The instances have the pipes now; with an end open here, the logs would never end.
        self._logs.release()
        self._started_s = time.time()
        self._started_monotonic_s = time.monotonic()
        if self._sync is not None:
            self._sync.follow(self._scenario.checkpoints.sync_s)
        for instance in self._instances.values():
            instance.exited.add_done_callback(lambda exited: self._changed.set())

    def wait(self, timeout_s: float | None = None) -> Outcome:
        if not self._ended.wait(timeout_s):
            raise TimeoutError(f"the job {self.spec.name} has not ended within {timeout_s} s")
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome

    def stop(self) -> None:
        self._stop.set()
        self._changed.set()

    def kill(self, host: str, number: int | None = None) -> None:
        self._instances[host].signal(signal.SIGKILL if number is None else number)

    def close(self) -> None:
        for instance in self._instances.values():
            # First: the watcher returns when all are gone.
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
        try:
            self._outcome = self._follow()
        except BaseException as error:
            self._error = error
        finally:
            # ``wait`` must return after any failure.
            self._ended.set()
            self._on_end()

    def _follow(self) -> Outcome:
        """Wait for all exits; after a failure or a stop send SIGTERM, and later SIGKILL."""
        exits = Exits(spec=self.spec)
        stop_seen = stopped = terminated = False
        terminate_at = kill_at = float("inf")
        while len(exits.codes) < len(self._instances):
            # With a timeout, since no event marks the moments of SIGTERM and SIGKILL.
            self._changed.wait(
                min(WATCH_S, max(0.0, min(terminate_at, kill_at) - time.monotonic()))
            )
            self._changed.clear()
            for host, instance in self._instances.items():
                if host not in exits.codes and instance.exited.done():
                    exits.add(host, instance.exited.result(), self._now_s())
                    if self._sync is not None and exits.codes[host] == 128 + signal.SIGKILL:
                        # AWS does not promise to upload what an instance wrote just before it was
                        # killed.
                        assert self.spec.checkpoints is not None
                        self._sync.leave(self.paths(host).base / self.spec.checkpoints.target)
            now = time.monotonic()
            # A stop after the last exit changes nothing.
            if self._stop.is_set() and not stop_seen and len(exits.codes) < len(self._instances):
                stop_seen = True
                # After a failure a stop only hastens the end.
                stopped = not exits.failed()
                terminate_at = now
            if exits.failed():
                # Instances whose main process is stopped (SIGSTOP) cannot react to SIGTERM.
                for host, instance in self._instances.items():
                    if host not in exits.codes:
                        with contextlib.suppress(psutil.Error):  # it has just ended
                            if psutil.Process(instance.pid).status() == psutil.STATUS_STOPPED:
                                instance.kill()
                terminate_at = min(terminate_at, now + self._grace.settle_s)
            if not terminated and now >= terminate_at:
                terminated = True
                # SageMaker documents the grace period of a stopped job, but none after a failure.
                kill_at = now + (self._grace.stop_grace_s if stopped else self._grace.kill_s)
                self._signal_all(signal.SIGTERM)
            if terminated:
                terminate_at = float("inf")  # later exits must not send SIGTERM again
            if now >= kill_at:
                kill_at = float("inf")
                self._signal_all(signal.SIGKILL)
        # Make the instances' links to ``/opt/ml`` valid on this machine, so that outputs behind
        # them are found.
        if self._opt_ml_is_own:
            for host in self._instances:
                relink(self.paths(host).base, DEFAULT_BASE)
        self._finish_logs(self._keep_checkpoints())
        return exits.outcome(
            self.reason, stopped=stopped, started_s=self._started_s, ended_s=self._now_s()
        )

    def _now_s(self) -> float:
        # The clock may have been set since the start.
        return self._started_s + time.monotonic() - self._started_monotonic_s

    def _keep_checkpoints(self) -> list[str]:
        """Collect checkpoints for the last time.

        Return lines for the log on what is not kept, which fails no job.
        """
        if self._sync is None:
            return []
        lines = []
        try:
            self._sync.close()
        except Exception as error:
            self.checkpoint_error = f"{type(error).__name__}: {error}"
            lines.append(f"raysm: {NOT_KEPT}: {self.checkpoint_error}")
        return lines + self._sync.remarks()

    def _signal_all(self, number: int) -> None:
        for instance in self._instances.values():
            instance.signal(number)

    def _finish_logs(self, lines: list[str]) -> None:
        assert self._logs is not None
        self._logs.close()  # so that the lines follow the last line of the instances
        if self._logs.error is not None:
            raise self._logs.error
        for line in lines:
            self._on_line(self.head, line)
