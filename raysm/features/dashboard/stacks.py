"""Ask the head of a running job for the Python stacks of all its processes."""

import asyncio
from dataclasses import dataclass

from raysm.core.client.job.handle import Job, token_of
from raysm.core.client.logs.stream import JobStream
from raysm.core.protocol.control_line import MAX_LINE, ProtocolError, ask_head
from raysm.core.protocol.events import parse
from raysm.core.protocol.stacks import (
    Group,
    ProcessStack,
    group,
    lines_of,
    remarks,
    sentence,
    unpack,
)
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.dashboard.address import CONTROL, DashboardAddress, read_address, tunnel_to

ANSWER_S = 30.0
NATIVE_ANSWER_S = 60.0


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stacks of a job's processes at one moment.

    Attributes:
        processes: One for each busy Python process of every instance.
    """

    processes: tuple[ProcessStack, ...]

    @property
    def groups(self) -> list[Group]:
        """Processes with equal stacks together, the smallest groups first."""
        return group(self.processes)

    @property
    def sentence(self) -> str:
        """Who waits where, and who is elsewhere."""
        return sentence(self.groups)

    def __str__(self) -> str:
        above = [self.sentence, *remarks(self.processes)]
        return "\n".join([*above, "", *lines_of(self.groups)]).rstrip()

    __repr__ = __str__


def read_stacks(job: Job, *, native: bool = False) -> Stacks:
    """Return the stacks of a running job; ``Job.stacks`` describes it."""
    address = _find_control(job)
    token = token_of(job).encode()
    with tunnel_to(job, address) as tunnel:
        try:
            text = asyncio.run(_ask(tunnel.address, token, native))
            return Stacks(processes=tuple(unpack(text)))
        except (ProtocolError, OSError, ValueError) as error:
            raise ServiceError(
                f"the head of {job.name} did not answer: {error or 'no answer in time'}; "
                f"raysm status {job.name} shows whether it still runs",
                is_transient=True,
            ) from error


async def _ask(address: str, token: bytes, native: bool) -> str:
    host, _, port = address.rpartition(":")
    question = {"kind": "stacks", "native": native}
    async with asyncio.timeout(NATIVE_ANSWER_S if native else ANSWER_S):
        reader, writer = await asyncio.open_connection(host, int(port), limit=MAX_LINE)
        try:
            return await ask_head(reader, writer, token, question)
        finally:
            writer.close()


def _find_control(job: Job) -> DashboardAddress:
    found = None
    if not job.done():
        for line in JobStream(job.chain).new_lines():
            # The last one: a follow-up job has another address.
            found = read_address(parse(line.text), CONTROL) or found
    if found is None:
        why = f"it is {job.secondary_status or job.status}, and its workload has not begun"
        if job.done():
            why = f"it has ended ({job.status})"
        raise InvalidRequest(f"{job.name} has no stacks: {why}")
    return found
