"""The job's one driver: its process, and all that tells why it ended.

What flows in is the instance, what flows out is the ``ExitStatus`` that the driver's end makes: by what it has
recorded of its failure, by what it wrote last, or by what the kernel did to it.
"""

import contextlib
from collections.abc import Callable
from signal import SIGKILL, SIGTERM

from raysm.bootstrap import failure_record, resources
from raysm.bootstrap.children import Children
from raysm.bootstrap.commands import WAIT
from raysm.bootstrap.driver_process import DriverProcess
from raysm.bootstrap.exit_status import ExitStatus, exit_status_of_driver
from raysm.bootstrap.instance import Instance
from raysm.bootstrap.lifecycle import DriverEnded
from raysm.bootstrap.private_files import private_tempdir
from raysm.contract.result import Failure

__all__ = ["DriverRun"]


class DriverRun:
    """One run of the driver, from its start to its folder's end."""

    def __init__(
        self, instance: Instance, children: Children, address: str | None, report: Callable[[DriverEnded], None]
    ) -> None:
        """Start the driver.

        Args:
            instance: The head.
            children: Of the head.
            address: Of the cluster; None starts a driver that waits until there is one.
            report: Called in the event loop when the driver has ended.
        """
        self._instance = instance
        self._exit = contextlib.ExitStack()
        # In the instance's own folder: a head that is killed leaves nothing in a /tmp that it may share with others.
        folder = self._exit.enter_context(private_tempdir(instance.environment.paths))
        self._record = folder / "failure.json"
        is_tracked = instance.payload.request.is_tracked_by_head
        driver = instance.commands.tracked_driver if is_tracked else instance.commands.driver
        command = (*driver, *([WAIT] if address is None else []))
        environment = instance.driver_environment(address, str(self._record))
        # Before the driver: a kernel that kills it at once would be missing from the difference.
        self._oom_kills = resources.oom_kills()
        source = instance.payload.source
        self._process = DriverProcess(children, command, environment, source, waits=address is None)
        self._process.child.ended.add_done_callback(
            lambda ended: report(DriverEnded(ended.result(), failure_record.read(self._record)))
        )

    def go(self, address: str) -> None:
        """Tell a driver that waits where the cluster is; an empty address: there will be none."""
        self._process.go(address)

    def terminate(self) -> None:
        """Send it SIGTERM, and nothing to what it has started: its checkpoint may need that."""
        self._process.child.signal(SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to it and to what it has left behind in its process group."""
        self._process.child.signal_group(SIGKILL)

    def own_exit_status(self) -> ExitStatus | None:
        """Return the exit status that the driver's own failure makes, if it has recorded one; publish that.

        None where it has not failed, or says that Ray or an instance failed it.
        """
        failure = failure_record.read(self._record)
        if failure is None or failure_record.blames_cluster(failure):
            return None
        return self._publish(ExitStatus(failure.exit_code, failure.reason()), failure)

    def exit_status(self, end: DriverEnded) -> ExitStatus:
        """Return the exit status that the driver's end makes; publish the failure that it has recorded."""
        now, before = resources.oom_kills(), self._oom_kills
        meanwhile = None if now is None or before is None else now - before
        self.kill()  # what it left behind holds its stderr open
        memory_bytes = self._instance.capacity.memory_bytes
        status = exit_status_of_driver(end.status, end.failure, self._process.tail(), memory_bytes, meanwhile)
        return self._publish(status, end.failure)

    def _publish(self, status: ExitStatus, failure: Failure | None) -> ExitStatus:
        if failure is not None and status.reason:
            failure_record.publish(self._record, self._instance.environment.paths.output_data)
        return status

    def close(self) -> None:
        """Forget a driver that has ended, and remove its folder."""
        self._process.go("")  # one that still waits has a pipe to be closed
        self._process.close()
        self._exit.close()
