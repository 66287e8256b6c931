"""Runs a request on instances of this machine and moves its result into place."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from raysm.cli.display import Display
from raysm.contract import payload
from raysm.contract.result import MANIFEST
from raysm.contract.store import PARTIAL
from raysm.errors import InvalidInput, InvalidRequest, JobFailed
from raysm.local.channels import local_path
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.scratch import Scratch
from raysm.local.training_job import Kind, TrainingJob
from raysm.request import JobRequest
from raysm.request.job import PAYLOAD_CHANNEL

__all__ = ["check_output", "run"]


def check_output(output: Path) -> None:
    """Refuse a folder whose content is not an earlier result: nothing of the user's is overwritten.

    Raises:
        InvalidRequest: ``output`` is a file, cannot be written, or holds something else.
    """
    if output.exists() and not output.is_dir():
        raise InvalidRequest(f"--output {output} is a file; name a folder")
    if output.is_dir() and any(output.iterdir()) and not (output / MANIFEST).is_file():
        raise InvalidRequest(f"--output {output} holds something that is no result of raysm; name another folder")
    existing = _nearest(output)
    if not os.access(existing, os.W_OK):
        raise InvalidRequest(f"--output {output} cannot be made: {existing} is not writable")


def _nearest(output: Path) -> Path:
    """Return the folder that is there and in which, or below which, ``output`` will be."""
    return next(folder for folder in output.absolute().parents if folder.is_dir())


def run(request: JobRequest, *, kind: Kind, output: Path, display: Display) -> Path | None:
    """Run ``request`` and leave what it put into ``/opt/ml/model`` in ``output``.

    Returns:
        ``output``, or None where the job left nothing there.

    Raises:
        JobFailed: It ended otherwise than Completed; the message is the failure reason.
        KeyboardInterrupt: The user stopped it; nothing is left behind.
    """
    # On the output's file system, so that a result of any size is moved by renaming it.
    with (
        Scratch(_nearest(output), prefix=".raysm-") as scratch,
        _terminated_as_interrupted(),
        TrainingJob(
            _spec(request, scratch.path / "payload"), root=scratch.path, kind=kind, on_line=display.line
        ) as job,
    ):
        display.token_file = scratch.path / "payload" / "token"
        job.start()
        try:
            outcome = job.wait()
        except KeyboardInterrupt:
            display.say(f"stopping: user code has {request.grace_s:.0f} s to save its work; Ctrl-C again ends it now")
            job.stop()
            job.wait()
            raise
        if outcome.status != "Completed":
            raise JobFailed(outcome.failure_reason or f"the job ended as {outcome.status}")
        return _deliver(job.model_dir, output)


def _spec(request: JobRequest, packed: Path) -> JobSpec:
    cluster = request.cluster
    groups = [(group.name, group.instance_type, group.count) for group in cluster.groups]
    named = number_hosts(*(groups or [("homogeneousCluster", cluster.instance_type, cluster.count)]))
    channels = [
        Channel(name=name, source=local_path(name, given.uri), distribution=given.distribution)
        for name, given in request.inputs.items()
    ]
    for channel in channels:
        if not channel.source.exists():
            raise InvalidInput(f"channel {channel.name!r}: {channel.source} is not there; check the path")
    payload.pack(request, packed)
    return JobSpec(
        name=request.name,
        groups=named,
        head=next((group.hosts[0] for group in named if group.name == cluster.head), None),
        command=(sys.executable, "-m", "raysm.bootstrap"),
        channels=(*channels, Channel(name=PAYLOAD_CHANNEL, source=packed)),
        losses_allowed=cluster.on_instance_loss == "continue",
    )


def _deliver(model: Path, output: Path) -> Path | None:
    entries = sorted(path for path in model.iterdir() if not path.name.endswith(PARTIAL))
    if not entries:
        return None
    output.mkdir(parents=True, exist_ok=True)
    # The old manifest goes first and the new one comes last: where a manifest is, the result is whole.
    (output / MANIFEST).unlink(missing_ok=True)
    for entry in sorted(entries, key=lambda path: path.name == MANIFEST):
        target = output / entry.name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        entry.replace(target)
    return output


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and a closed terminal stop the job like Ctrl-C, instead of leaving it without its parent."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    previous = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, action in previous.items():
            signal.signal(getattr(signal, name), action)
