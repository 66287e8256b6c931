"""Run an instance from its start to its exit code.

Every error becomes one clear reason in the failure file, without a traceback.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import Mapping

from raysm.core.protocol import names
from raysm.core.protocol.events import Metric, State
from raysm.errors import ClusterError, InvalidConfig
from raysm.instance.children import Children, Commands
from raysm.instance.environment import inherited
from raysm.instance.exit_status import (
    ExitStatus,
    exit_status_of_error,
    report_startup_failure,
    reserve_room,
)
from raysm.instance.gpus import check_gpus, missing_gpus
from raysm.instance.head import Head
from raysm.instance.instance import Instance, prepare
from raysm.instance.log import emit_event, remark
from raysm.instance.outputs import warn_of_lost_files
from raysm.instance.resources import PeakMemory, has_efa
from raysm.instance.scratch import settle_scratch
from raysm.instance.transport import describe_transport
from raysm.instance.worker import Worker


def main(environ: Mapping[str, str] | None = None, commands: Commands | None = None) -> int:
    """Run this instance until its end; return the exit code of its first process."""
    # SageMaker's init passes SIGTERM on to this process. Without an init this is PID 1, which
    # ignores signals without a handler. The event loop replaces this handler.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the entry point has blocked it
    # Usually the entrypoint has set BEGAN, but an image may start with this program.
    variables = {
        names.BEGAN: str(time.monotonic()),
        **(inherited() if environ is None else environ),
    }
    instance = begin(variables, commands)
    if isinstance(instance, ExitStatus):
        return instance.exit_code
    return asyncio.run(supervise(instance)).exit_code


def begin(environ: Mapping[str, str], commands: Commands | None = None) -> Instance | ExitStatus:
    try:
        # settle_scratch changes nothing if the entrypoint has called it already.
        return prepare(settle_scratch(environ), commands)
    except Exception as error:  # every error becomes a failure reason
        return report_startup_failure(error, environ)


async def supervise(instance: Instance) -> ExitStatus:
    warning = instance.capacity.object_store.warning
    if warning:
        remark(f"warning: {warning}")
    begun_s = time.time()
    children = Children()
    is_head = instance.name == instance.head
    role = Head(instance, children) if is_head else Worker(instance, children)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, role.stop)
    reserve_room(instance.environment.paths.failure)
    memory = PeakMemory()
    beside = [asyncio.create_task(memory.run())]
    # Images for CPUs have no nvidia-smi.
    if shutil.which("nvidia-smi") is not None and not instance.cluster.allow_cpu:
        gpus = instance.capacity.gpus
        instance_type = instance.environment.current.instance_type
        if missing := missing_gpus(instance.name, gpus, instance_type, instance.inherited):
            remark(f"warning: {missing}")
        if gpus > 0:
            # The workload begins when the GPUs of all instances are checked.
            role.hold()
            beside.append(asyncio.create_task(_check_gpus(instance, role, children)))
    try:
        status = await role.run()
    except Exception as error:  # every error becomes a failure reason
        status = exit_status_of_error(error)
    status = status.led_by_file(instance.environment.paths.failure)
    for task in beside:
        task.cancel()
    # The failure file comes first, because the service may kill this instance when another one has
    # failed. If writing it fails, the other instances must still be notified, and the exit code
    # must stay the same.
    with contextlib.suppress(Exception):
        status.write(instance.environment.paths.failure)
    with contextlib.suppress(Exception):
        memory.sample()
        warning = warn_of_lost_files(instance, begun_s)
        if warning:
            remark(warning)
    with contextlib.suppress(Exception):
        if status.reason:
            # Only the headline, because the log already contains the driver's traceback.
            remark(f"{instance.name} failed: {status.headline}")
        if memory.bytes:
            emit_event(Metric(name="peak_memory_bytes", value=memory.bytes, host=instance.name))
        if is_head and not status.stopped:
            name = "failed" if status.reason else "done"
            emit_event(State(name=name, host=instance.name, detail=status.headline))
    try:
        await role.end(status)
    finally:
        children.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return status


async def _check_gpus(instance: Instance, role: Head | Worker, children: Children) -> None:
    try:
        await check_gpus(
            instance.name,
            instance.capacity.gpus,
            instance.ray_environment(),
            children,
            lambda sentence: remark(f"warning: {sentence}"),
        )
        _say_transport(instance)
    except (ClusterError, InvalidConfig) as error:
        # Not released: the head would begin the work before it learns of this failure.
        role.fail(error)
        return
    except Exception as error:
        remark(
            f"warning: {instance.name}: its GPUs could not be checked: "
            f"{type(error).__name__}: {error}; the job goes on"
        )
    role.release()


def _say_transport(instance: Instance) -> None:
    """Say once how NCCL connects the GPUs of several instances, and warn where it is slow."""
    is_distributed = "torch" in instance.request.packages and instance.cluster.size > 1
    if not instance.capacity.gpus or not is_distributed:
        return
    transport, warning = describe_transport(instance.ray_environment(), efa=has_efa())
    if instance.name == instance.head:
        remark(f"NCCL connects the instances by {transport}")
    if warning:
        remark(f"warning: {instance.name}: {warning}")
