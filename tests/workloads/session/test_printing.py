"""What calls print in processes of their own."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

from raysm.contract.events import Metric, line
from raysm.contract.session import CALL, CallRequest
from raysm.workloads.session.calls import Call
from raysm.workloads.session.printing import Printing


def listening(script, **options):
    """Run the coroutine function ``script(printing, send)``; ``send`` sends bytes to the socket."""

    async def go():
        # Short: a socket's path has at most 107 bytes.
        private = Path(tempfile.mkdtemp(prefix="rp"))
        printing = Printing(private / "s", **options)
        await printing.start()
        _, writer = await asyncio.open_unix_connection(printing.socket)

        def send(*messages):
            for message in messages:
                writer.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

        try:
            return await asyncio.wait_for(script(printing, send), 60)
        finally:
            writer.close()
            printing.close()
            shutil.rmtree(private)

    return asyncio.run(go())


def call_of(id):
    return Call(id, CallRequest(kind=CALL, name="f"), b"", lambda: None)


def said(call):
    return [(piece.stream, piece.text) for piece in call.output.since(0)]


def test_each_call_has_what_it_printed_before_its_end():
    async def script(printing, send):
        first, second = call_of("a"), call_of("b")
        with printing.of(first), printing.of(second):
            send(
                {"call": "a", "stream": "stdout", "text": "one\n"},
                {"call": "b", "stream": "stderr", "text": "two\n"},
                {"call": "a", "stream": "stderr", "text": "three\n"},
            )
            await printing.drain(first, 2)
            await printing.drain(second, 1)
        return said(first), said(second)

    assert listening(script) == ([("stdout", "one\n"), ("stderr", "three\n")], [("stderr", "two\n")])


def test_half_a_message_and_what_a_call_prints_behind_its_end_disturb_nobody():
    async def script(printing, send):
        call = call_of("a")
        with printing.of(call):
            send(b'{"call": \n', {"call": "gone", "stream": "stdout", "text": "late"})
            send({"call": "a", "stream": "stdout", "text": "x" * 100_000})
            await printing.drain(call, 1)
        return said(call)

    assert listening(script) == [("stdout", "x" * 100_000)]


def test_a_metric_is_the_jobs_and_no_output(capsys):
    metric = line(Metric(name="loss", value=0.5))

    async def script(printing, send):
        call = call_of("a")
        with printing.of(call):
            send({"call": "a", "event": metric})
            await printing.drain(call, 1)
        return said(call)

    assert listening(script) == []
    assert capsys.readouterr().out == metric + "\n"


def test_output_that_never_comes_is_waited_for_no_longer_than_its_while():
    async def script(printing, send):
        call = call_of("a")
        with printing.of(call):
            await printing.drain(call, 1)

    listening(script, drain_s=0.5)
