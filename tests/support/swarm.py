"""Many simulated workers in one process; run as a program: ``swarm.py PORT TOKEN_FILE COUNT FREEZE``.

They join, beat, and end when the head says done. Worker ``algo-<FREEZE>`` stops speaking on the line ``freeze`` on
stdin, its connection left open. Prints ``joined N`` when all have joined, and at the end how many heard the head beat.
"""

import asyncio
import sys
from pathlib import Path

from raysm.bootstrap import control
from raysm.bootstrap.control import Identity, MessageReceived
from raysm.bootstrap.lifecycle import Lost
from raysm.bootstrap.wire import MAX_LINE

IDENTITY = Identity(payload="p", python="3", ray="2", raysm="0")


async def live(port, token, host, ended):
    worker = await control.join(
        lambda: asyncio.open_connection("127.0.0.1", port, limit=MAX_LINE),
        token=token,
        host=host,
        head="algo-1",
        identity=IDENTITY,
        silence_s=120.0,
    )

    def report(what):
        if isinstance(what, MessageReceived) and what.message.get("kind") == "done":
            ended.append(host)
            worker.tell({"kind": "bye"})
        elif isinstance(what, Lost):
            ended.append(what.reason)

    return asyncio.create_task(worker.run(report))


async def main():
    port, token, count, freeze = int(sys.argv[1]), Path(sys.argv[2]).read_bytes(), int(sys.argv[3]), sys.argv[4]
    ended = []
    # In hundreds: so many processes would not start within the same millisecond either.
    tasks = {}
    for first in range(2, count + 2, 100):
        hosts = [f"algo-{i}" for i in range(first, min(first + 100, count + 2))]
        tasks |= dict(
            zip(hosts, await asyncio.gather(*(live(port, token, host, ended) for host in hosts)), strict=True)
        )
    print("joined", len(tasks), flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line == b"freeze\n":
            tasks[f"algo-{freeze}"].cancel()
        elif line == b"end\n":
            break
    loop = asyncio.get_running_loop()
    until = loop.time() + 60
    while len(ended) < count - 1 and loop.time() < until:
        await asyncio.sleep(0.01)
    print("done", len([end for end in ended if end.startswith("algo-")]), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
