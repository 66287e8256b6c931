"""The commands that send a job: arguments to a prepared job, and what a person sees until its result is there."""

import contextlib
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from raysm.cli.arguments import Arguments
from raysm.cli.display import Display
from raysm.client.job import Job
from raysm.client.result_folder import check_folder
from raysm.client.submit import Prepared, prepare
from raysm.errors import InvalidRequest
from raysm.request import AWS, Cluster, Input, Limits, Local, Script, Similarity, Target, TorchScript
from raysm.request.similarity import MATRIX, QUERIES

__all__ = ["check_output", "cluster", "follow", "prepared", "similarity", "target"]


def target(arguments: Arguments) -> Target:
    """Return where the arguments send the job.

    Raises:
        InvalidRequest: AWS without a role, or an option that belongs to the other place.
    """
    if arguments.on == "local":
        for name in ("role", "region", "profile", "bucket"):
            if getattr(arguments, name) is not None:
                raise InvalidRequest(f"--{name} belongs to --on aws")
        return Local(instance_kind=arguments.instance_kind, image=arguments.image)
    if arguments.role is None:
        raise InvalidRequest("--on aws needs --role, the ARN of the role that the job runs as")
    return AWS(
        role=arguments.role,
        region=arguments.region,
        bucket=arguments.bucket,
        image=arguments.image,
        profile=arguments.profile,
    )


def similarity(arguments: Arguments) -> Similarity:
    """Return the similarity that the arguments ask for.

    Raises:
        InvalidRequest: They ask for what cannot be.
    """
    return Similarity(
        top_k=arguments.top_k,
        threshold=arguments.threshold,
        full=arguments.full,
        dtype=arguments.dtype,
        id_column=arguments.id_column,
        block_rows=arguments.block_rows,
    )


def cluster(arguments: Arguments) -> Cluster:
    """Return the instances that the arguments ask for.

    Raises:
        InvalidRequest: AWS without a type, or a number that cannot be.
    """
    if arguments.instance_type is not None:
        return Cluster(arguments.instance_type, count=arguments.instances)
    if arguments.on == "aws":
        raise InvalidRequest("--on aws needs --instance-type, ml.c5.4xlarge for example")
    return Cluster(count=arguments.instances)


def prepared(arguments: Arguments) -> Prepared:
    """Build the job that the arguments ask for; nothing is sent.

    Raises:
        InvalidRequest: They ask for what cannot be; the message says what, the value and the remedy.
    """
    where = target(arguments)
    workload: Script | Similarity | TorchScript
    if arguments.command == "similarity":
        workload = similarity(arguments)
        inputs = {MATRIX: _matrix(arguments)}
        if arguments.queries is not None:
            inputs[QUERIES] = arguments.queries
    elif arguments.command == "train":
        workload = TorchScript(
            arguments.script,
            args=arguments.script_args,
            source_dir=arguments.source_dir,
            workers_per_instance=arguments.workers_per_instance,
            spawns=arguments.spawns,
            max_restarts=arguments.worker_restarts,
        )
        inputs = _channels(arguments.input)
    else:
        workload = Script(arguments.script, args=arguments.script_args, source_dir=arguments.source_dir)
        inputs = _channels(arguments.input)
    limits = Limits(
        max_runtime_s=arguments.max_runtime,
        spot=arguments.spot,
        max_wait_s=arguments.max_wait,
        max_restarts=arguments.max_restarts,
    )
    return prepare(
        workload,
        cluster=cluster(arguments),
        inputs=inputs,
        on=where,
        name=arguments.name,
        project=arguments.project,
        limits=limits,
        environment=_named(arguments.env, "--env", "VALUE", "variable"),
        requirements=[*arguments.requirement, *map(_requirement, arguments.wheel)],
        wheels=arguments.wheel,
        resume=arguments.resume,
    )


def _matrix(arguments: Arguments) -> Any:
    if not arguments.sharded:
        return arguments.matrix
    if arguments.queries is not None:
        raise InvalidRequest("--sharded spreads a matrix that is compared with itself; leave --queries away")
    return Input(arguments.matrix, distribution="ShardedByS3Key")


def _channels(texts: list[str]) -> dict[str, Any]:
    return _named(texts, "--input", "URI", "channel")


def _requirement(wheel: str) -> str:
    """Return the requirement that a wheel's file name fulfils: pip installs no wheel that is not asked for."""
    parts = Path(wheel).name.removesuffix(".whl").split("-")
    if not wheel.endswith(".whl") or len(parts) not in (5, 6):
        raise InvalidRequest(f"--wheel takes a file NAME-VERSION-PYTHON-ABI-PLATFORM.whl, got {wheel!r}")
    return f"{parts[0]}=={parts[1]}"


def _named(texts: list[str], option: str, value: str, noun: str) -> dict[str, Any]:
    """Return the values of a repeated NAME=VALUE option by their names."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, content = text.partition("=")
        if not (name and equals and (content or noun == "variable")):
            raise InvalidRequest(f"{option} takes NAME={value}, got {text!r}")
        if name in values:
            raise InvalidRequest(f"the {noun} {name!r} is given twice: {option} {name}={values[name]} and {text}")
        values[name] = content
    return values


def check_output(output: Path) -> None:
    """Refuse, before anything is computed, a folder into which the result could not be brought.

    Raises:
        InvalidRequest: ``output`` is a file, cannot be written, or holds something that is no result.
    """
    check_folder(output)
    try:
        # Made and written to, not asked about: to root every folder looks writable.
        made = [folder for folder in (output, *output.absolute().parents) if not folder.exists()]
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
        for folder in made:
            folder.rmdir()
    except OSError as error:
        raise InvalidRequest(f"--output {output} cannot be written: {error.strerror}; name another folder") from error


def follow(job: Job, display: Display) -> None:
    """Show the job's lines until it has ended. On this machine Ctrl-C stops the job; on AWS it only ends the showing.

    Raises:
        KeyboardInterrupt: The user ended it; a job of this machine is gone by then.
    """
    with _terminated_as_interrupted():
        try:
            for line in job.lines(follow=True):
                display.line(line.host, line.text)
        except KeyboardInterrupt:
            if job.service.target.is_billed:
                display.say(
                    f"{job.name} goes on: raysm logs -f {job.name} --on aws …, or raysm stop {job.name} --on aws …"
                )
                raise
            display.say("stopping: user code has its grace to save its work; Ctrl-C again leaves it to the server")
            job.stop()
            raise


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM and a closed terminal are taken like Ctrl-C."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    previous = {name: signal.signal(getattr(signal, name), interrupt) for name in names}
    try:
        yield
    finally:
        for name, action in previous.items():
            signal.signal(getattr(signal, name), action)
