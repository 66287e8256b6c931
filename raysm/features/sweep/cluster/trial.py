"""One trial in a worker process.

It is an actor that the sweep calls, around the user's function or script. The actor runs the trial
in a thread and exchanges messages with the sweep: each report, whose answer says whether the trial
goes on, and the end. An exception of user code is a message too: it would be raised again in
another attempt, and retries are for processes and instances that die.

Trials on all instances write and read their checkpoints on the head's disk through another actor,
``HeadFiles``, because SageMaker gives instances no shared folder. Files are sent in pieces, so that
memory stays bounded.
"""

import pkgutil
import queue
import random
import secrets
import shutil
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray

from raysm.core.protocol import payload, stack_signal
from raysm.core.protocol.names import TRIAL
from raysm.core.protocol.payload import read_request
from raysm.errors import InvalidRequest, TrialFailed, WorkerFailed
from raysm.features.sweep.request import FunctionSweep, ScriptSweep, SweepWorkload
from raysm.instance import environment
from raysm.instance.environment import Environment
from raysm.instance.ray_internals import BACKPRESSURE, spare_options
from raysm.instance.work.failure import unpickled
from raysm.instance.work.folders import UNDER_WAY, fill_folders, read_pieces, write_pieces
from raysm.instance.work.forks import ending_forks
from raysm.instance.work.nodes import only_on
from raysm.instance.work.program import (
    TAIL_LINES,
    command_line,
    describe_end,
    read_lines,
    start_program,
)
from raysm.instance.work.report import RESTORED, Listener, Report, listening, parse, report_of

CALLS_AT_ONCE = 8
"""Calls that the actor answers at a time, so that trials wait for the disk and not for each
other."""

PARTIAL = ".partial"


class HeadFiles:
    """An actor on the head that serves the folders below ``root``.

    The names of the folders are paths relative to ``root``.
    """

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def ready(self) -> None: ...

    def write(self, folder: str, name: str, piece: bytes) -> None:
        target = self._at(folder + PARTIAL) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("ab") as file:
            file.write(piece)

    def commit(self, folder: str) -> None:
        partial = self._at(folder + PARTIAL)
        partial.mkdir(parents=True, exist_ok=True)  # without files
        partial.rename(self._at(folder))

    def read(self, folder: str) -> Iterator[tuple[str, bytes]]:
        yield from read_pieces(self._at(folder))

    def _at(self, path: str) -> Path:
        at = (self._root / path).resolve()
        if not at.is_relative_to(self._root.resolve()):
            raise ValueError(f"{path} is outside of {self._root}")
        return at


def serve_files(root: Path, node_id: str) -> Any:
    options = {
        "num_cpus": 0,
        "max_concurrency": CALLS_AT_ONCE,
        "scheduling_strategy": only_on(node_id),
    }
    actor = ray.remote(HeadFiles).options(**options).remote(str(root))
    # Wait, so that an actor that cannot start fails the sweep and not its first trial.
    ray.get(actor.ready.remote())
    return actor


def upload(files: Any, folder: Path, name: str) -> None:
    """Copy a local folder to the head as ``name``, which nothing else uses.

    The folder appears on the head once it is complete.
    """
    for file, piece in read_pieces(folder):
        ray.get(files.write.remote(name, file, piece))
    ray.get(files.commit.remote(name))


def download(files: Any, name: str, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Without backpressure a whole checkpoint would pile up in the head's object store.
    options = spare_options(BACKPRESSURE, {"_generator_backpressure_num_objects": UNDER_WAY})
    stream = files.read.options(num_returns="streaming", **options).remote(name)
    write_pieces((ray.get(piece) for piece in stream), folder)


MODEL = "model"
TRACEBACK_CHARACTERS = 4000


class EndedEarly(SystemExit):
    """A report raises this if the trial should stop.

    The exception passes through user code like ``sys.exit(0)``.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    number: int
    params: Mapping[str, Any]
    checkpoint: str | None
    """Name of the checkpoint on the head to continue from; None starts from the beginning."""
    files: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    report: Report = field(default_factory=Report)
    """The metrics; at the end those that the function returned. Its checkpoint is a name on the
    head."""
    status: str = ""
    """``done``, ``failed`` or ``stopped`` at the end."""
    reason: str = ""
    traceback: str = ""
    host: str = ""


class TrialActor:
    """A Ray actor that runs trials, one after the other, and exchanges messages with the sweep."""

    def ready(self) -> None: ...

    def begin(self, assignment: Assignment) -> Message:
        # New queues each time: a thread that an earlier trial left behind must not receive this
        # one's answers.
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[bool] = queue.SimpleQueue()
        arguments = assignment, self._messages, self._answers
        threading.Thread(target=_work, args=arguments, daemon=True, name="raysm-trial").start()
        return self._messages.get()

    def answer(self, goes_on: bool) -> Message:
        """Answer the last report; return the next message."""
        self._answers.put(goes_on)
        return self._messages.get()


def _work(
    assignment: Assignment,
    messages: "queue.SimpleQueue[Message]",
    answers: "queue.SimpleQueue[bool]",
) -> None:
    # A trial may report from several threads.
    lock = threading.Lock()

    def deliver(message: Message) -> None:
        with lock:
            messages.put(message)
            goes_on = answers.get()
        if not goes_on:
            raise EndedEarly(0)

    messages.put(run_trial(assignment, deliver))


@dataclass(kw_only=True)
class TrialRun:
    workload: SweepWorkload
    here: Environment
    assignment: Assignment
    folder: Path
    deliver: Callable[[Message], None]
    """Sends a report to the sweep; raises EndedEarly if the trial should stop."""

    @property
    def seed(self) -> int | None:
        """The seed of all processes of the trial.

        So their models begin with equal weights.
        """
        return None if self.workload.seed is None else self.workload.seed + self.assignment.number

    def take(self, report: Report) -> None:
        stop = self.workload.stop
        if stop is not None and stop.needs_checkpoints and report.checkpoint is None:
            raise InvalidRequest(
                f"stop={stop.kind!r} lets trials continue with the weights of others, so each "
                "report needs a checkpoint: raysm.report(…, checkpoint=folder). Start from the "
                "folder that raysm.restored() returns"
            )
        self.deliver(Message(report=self.upload_checkpoint(report), host=self.here.current_host))

    def upload_checkpoint(self, report: Report) -> Report:
        if report.checkpoint is None:
            return report
        name = f"{self.assignment.number}/{secrets.token_hex(6)}"
        upload(self.assignment.files, Path(report.checkpoint), name)
        return replace(report, checkpoint=name)


def run_trial(assignment: Assignment, deliver: Callable[[Message], None]) -> Message:
    host = ""
    # The process of the trial before has its number until now.
    stack_signal.register(f"trial {assignment.number}")
    try:
        instance = environment.read()
        host = instance.current_host
        # Read from the payload, so that only the parameters travel with each trial.
        workload: Any = read_request(instance.payload).workload
        with trial_folder(instance, f"{assignment.number}-{secrets.token_hex(4)}") as folder:
            run = TrialRun(
                workload=workload,
                here=instance,
                assignment=assignment,
                folder=folder,
                deliver=deliver,
            )
            begin_in(folder, assignment, run.seed)
            value: Any = None
            if isinstance(workload, ScriptSweep):
                run_script(run)
            else:
                value = _run_function(run)
            # The files in the model folder are the trial's last state.
            model = folder / MODEL
            left = model if any(model.iterdir()) else None
            report = report_of(find_metrics(value, workload.metric), None, left)
            return Message(report=run.upload_checkpoint(report), status="done", host=host)
    except EndedEarly:
        return Message(status="stopped", host=host)
    except (
        BaseException
    ) as error:  # KeyboardInterrupt too: without a message the sweep would wait forever
        reason, lines = trial_reason(error)
        return Message(
            status="failed", reason=reason, traceback=lines[-TRACEBACK_CHARACTERS:], host=host
        )


def _run_function(run: TrialRun) -> Any:
    workload: FunctionSweep = run.workload  # type: ignore[assignment]  # the sweep of a function
    if workload.workers > 1:
        # Imported here because it needs torch, which a function in one process may do without.
        group = pkgutil.resolve_name("raysm.features.sweep.cluster.group:run_group")
        return group(run)
    return call(run.here, workload, run.assignment.params, run.take)


def call(
    here: Environment, workload: FunctionSweep, params: Mapping[str, Any], take: Listener
) -> Any:
    # Unpickled for each trial, so that a reused process does not show one trial what another
    # changed in the function.
    function, _, _ = unpickled(here.payload / payload.FUNCTION, workload.name)
    try:
        with listening(take), ending_forks():
            return function(dict(params)) if workload.takes_config else function(**params)
    except EndedEarly:
        raise
    except SystemExit as error:
        # Many main() functions end with sys.exit(0), a normal end.
        if error.code not in (None, 0):
            raise
        return None
    finally:
        # End the session of raysm.training, if the function began one. Looked up, because importing
        # it imports torch.
        session = sys.modules.get("raysm.features.training.cluster.loop.session")
        if session is not None:
            session.end()


def run_script(run: TrialRun) -> None:
    workload: ScriptSweep = run.workload  # type: ignore[assignment]
    source = run.here.payload / payload.SOURCE
    arguments = to_arguments(run.assignment.params, fill_folders(workload.args, run.here))
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    words = command_line(workload.script, arguments, source=source, is_command=workload.command)
    with start_program(words, source) as process:
        for line in read_lines(process):
            report = parse(line)
            if report is None:
                sys.stdout.write(line)
                # The tail has no reports, because they do not explain a failure.
                tail.append(line.rstrip())
            else:
                run.take(report)
                if report.checkpoint is not None:
                    # The script made this copy for the report alone.
                    shutil.rmtree(report.checkpoint, ignore_errors=True)
        status = process.wait()
    if status:
        reason = describe_end(status, tail)
        for name in run.assignment.params:
            # argparse's error; click and others word theirs otherwise.
            if "_" in name and f"unrecognized arguments: {_flag(name)}" in reason:
                reason += f"; if the script spells it so, add the argument --{name}={{{name}}}"
        raise TrialFailed(reason, "\n".join(tail))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def to_arguments(params: Mapping[str, Any], args: Sequence[str] = ()) -> list[str]:
    """Return parameters as arguments: ``--lr=0.01``, and the flag alone for True.

    False and None give none. A parameter that ``args`` has as ``{lr}`` is put there instead. Name
    and value are one word, because argparse takes a second word that begins with ``-`` (-1.6e-05)
    as an option.
    """
    arguments: list[str] = []
    for name, value in params.items():
        if any(f"{{{name}}}" in arg for arg in args):
            args = [arg.replace(f"{{{name}}}", str(value)) for arg in args]
            continue
        flag = _flag(name)
        if value is True:
            # The form that argparse's store_true expects.
            arguments.append(flag)
        elif value is not False and value is not None:
            arguments.append(f"{flag}={value}")
    return [*arguments, *args]


@contextmanager
def trial_folder(instance: Environment, name: str) -> Iterator[Path]:
    folder = instance.paths.scratch / "trials" / name
    # A process that was killed may have left the folder behind.
    shutil.rmtree(folder, ignore_errors=True)
    # Scripts for SageMaker expect that $SM_MODEL_DIR exists.
    (folder / MODEL).mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def begin_in(folder: Path, assignment: Assignment, seed: int | None) -> None:
    if assignment.checkpoint is not None:
        download(assignment.files, assignment.checkpoint, folder / RESTORED)
    environment.tell({TRIAL: str(folder), "SM_MODEL_DIR": str(folder / MODEL)})
    if seed is not None:
        seed_all(seed)


def seed_all(seed: int) -> None:
    random.seed(seed)
    if "numpy" in sys.modules:
        # NumPy's old generator takes 32 bits only.
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def find_metrics(value: object, metric: str) -> dict[str, float]:
    """Return the metrics in a function's value.

    The value is the metric itself, or a mapping of several metrics. Other values have none.
    """
    named = value if isinstance(value, Mapping) else {metric: value}
    # Values that are not numbers are ignored, since functions also return models and messages.
    numbers = {str(name): _number(item) for name, item in named.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def trial_reason(error: BaseException) -> tuple[str, str]:
    """Return why a trial failed in one line, and the traceback without raysm's own frames."""
    # raysm's own errors about scripts and other workers are sentences, with the remote lines
    # attached.
    if isinstance(error, TrialFailed | WorkerFailed):
        return str(error), error.remote_traceback
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__name__}"
    )
    frames = error.__traceback__
    while (
        frames is not None
        and "raysm/features/sweep/cluster/" in Path(frames.tb_frame.f_code.co_filename).as_posix()
    ):
        frames = frames.tb_next
    lines = "".join(traceback.format_exception(kind, error, frames))
    return f"{name}: {error}".removesuffix(": "), lines


def _number(value: Any) -> float | None:
    # float(True) is 1.0 and float("1") too; both are more likely mistakes than metrics.
    if value is None or isinstance(value, bool | str):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
