"""The control channel: who is taken, who is refused, and when somebody is lost."""

import asyncio
import contextlib
import json
import time
from dataclasses import replace

import pytest

from raysm.core.protocol.control_line import MAX_LINE, PART, TokenRefused, ask_head
from raysm.core.protocol.paths import Paths
from raysm.instance import control
from raysm.instance import lifecycle as life
from raysm.instance.control import HeadControl, Identity, MessageReceived, Refused
from raysm.instance.lifecycle import Joined, Left, Lost, Mismatch
from raysm.instance.outputs import PIECE, in_pieces, read_outputs

TOKEN = b"a secret of this test"
IDENTITY = Identity(payload="p", python="3.11.7", ray="2.60.0", raysm="0.1")
BEAT_S = 0.1
SILENCE_S = 600.0
"""So long may a peer be silent: no loss is known by waiting, however slow the machine."""


class Reports:
    """What was reported, and a way to wait for it."""

    def __init__(self):
        self.all = []
        self._more = asyncio.Event()

    def __call__(self, report):
        self.all.append(report)
        self._more.set()

    async def wait_for(self, wanted, timeout_s=60):
        async def look():
            while not (found := [report for report in self.all if wanted(report)]):
                self._more.clear()
                await self._more.wait()
            return found[0]

        return await asyncio.wait_for(look(), timeout_s)


@contextlib.asynccontextmanager
async def head(
    hosts=("algo-2", "algo-3"),
    identity=IDENTITY,
    beat_s=BEAT_S,
    silence_s=SILENCE_S,
    token=TOKEN,
    answer=None,
):
    reports = Reports()
    server = HeadControl(
        token=token,
        identity=identity,
        hosts=hosts,
        report=reports,
        silence_s=silence_s,
        beat_s=beat_s,
        answer=answer,
    )
    await server.start("127.0.0.1", 0)
    try:
        yield server, reports
    finally:
        await server.close()


async def join(
    server, host="algo-2", token=TOKEN, identity=IDENTITY, beat_s=BEAT_S, silence_s=SILENCE_S
):
    return await control.join(
        lambda: asyncio.open_connection("127.0.0.1", server.port, limit=MAX_LINE),
        token=token,
        host=host,
        head="algo-1",
        identity=identity,
        silence_s=silence_s,
        beat_s=beat_s,
    )


@contextlib.asynccontextmanager
async def running(worker):
    reports = Reports()
    task = asyncio.create_task(worker.run(reports))
    try:
        yield reports
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await worker.leave()


def test_messages_travel_both_ways_after_a_worker_has_joined():
    async def scenario():
        async with head() as (server, reports):
            worker = await join(server)
            async with running(worker) as heard:
                await reports.wait_for(lambda report: report == Joined("algo-2"))
                server.tell("algo-2", {"kind": "ray", "port": 1})
                worker.tell({"kind": "hello again"})
                told = await heard.wait_for(lambda report: isinstance(report, MessageReceived))
                assert told == MessageReceived("algo-1", {"kind": "ray", "port": 1})
                assert await reports.wait_for(
                    lambda report: report == MessageReceived("algo-2", {"kind": "hello again"})
                )
                assert worker.addresses == ("127.0.0.1", "127.0.0.1")

    asyncio.run(scenario())


def test_a_wrong_token_is_refused():
    async def scenario():
        async with head() as (server, reports):
            with pytest.raises(TokenRefused, match="token"):
                await join(server, token=b"another")
            assert (server.refused, server.joined, reports.all) == (1, frozenset(), [])

    asyncio.run(scenario())


class Spy:
    """Passes bytes between a worker and the head, keeps them, and changes what it is told to."""

    def __init__(self, port, change=lambda data: data):
        self.seen, self._port, self._change = b"", port, change
        self._tasks = []
        self._writers = []

    def end(self):
        """End both connections as the kernel does when a process dies."""
        for writer in self._writers:
            writer.transport.abort()

    async def __call__(self, reader, writer):
        onward, back = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, back]
        self._tasks.append(asyncio.create_task(self._pump(onward, writer, lambda data: data)))
        await self._pump(reader, back, self._change)
        await self._tasks[0]

    async def _pump(self, source, sink, change):
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                self.seen += data
                sink.write(change(data))
        sink.close()


async def through(spy, server):
    relay = await asyncio.start_server(spy, "127.0.0.1", 0)
    port = relay.sockets[0].getsockname()[1]
    worker = await control.join(
        lambda: asyncio.open_connection("127.0.0.1", port, limit=MAX_LINE),
        token=TOKEN,
        host="algo-2",
        head="algo-1",
        identity=IDENTITY,
        silence_s=SILENCE_S,
        beat_s=BEAT_S,
    )
    return relay, worker


def test_the_token_never_crosses_the_wire():
    async def scenario():
        async with head() as (server, _):
            spy = Spy(server.port)
            relay, worker = await through(spy, server)
            async with running(worker):
                pass
            relay.close()
        assert b"hello" in spy.seen
        assert TOKEN not in spy.seen
        assert TOKEN.hex().encode() not in spy.seen

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"harmless", b"harmful!"),
        lambda data: data * 2 if b"harmless" in data else data,
    ],
)
def test_a_message_that_is_changed_or_repeated_on_its_way_ends_the_connection(change):
    async def scenario():
        async with head() as (server, reports):
            relay, worker = await through(Spy(server.port, change), server)
            async with running(worker):
                worker.tell({"kind": "harmless"})
                lost = await reports.wait_for(lambda report: isinstance(report, Lost))
                assert "changed on its way" in lost.reason
                assert (
                    sum(
                        report == MessageReceived("algo-2", {"kind": "harmless"})
                        for report in reports.all
                    )
                    <= 1
                )
            relay.close()

    asyncio.run(scenario())


def test_silent_connections_keep_no_worker_out_and_the_oldest_is_dropped():
    async def scenario():
        async with head() as (server, reports):
            silent = []
            for _ in range(control.SPARE_STRANGERS + 3):
                silent.append(await asyncio.open_connection("127.0.0.1", server.port))
                assert b"nonce" in await silent[-1][0].readline()
            worker = await join(server)
            async with running(worker):
                await reports.wait_for(lambda report: report == Joined("algo-2"))
                # Nobody had to wait for their time to be over.
                assert not silent[-1][0].at_eof()
                with contextlib.suppress(ConnectionError):
                    assert await asyncio.wait_for(silent[0][0].read(), 60) == b""
            for _, writer in silent:
                writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b'{"host": "' + b"x" * 2000 + b'"}\n',
        b'{"host": "algo-2", "nonce": "\\ud800", "proof": "\\ud800"}\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_a_stranger_who_talks_nonsense_is_dropped_and_hears_nothing_of_the_job(said):
    async def scenario():
        async with head() as (server, reports):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            greeting = await reader.readline()
            writer.write(said)
            with contextlib.suppress(ConnectionError):
                rest = await asyncio.wait_for(reader.read(), 60)
                assert rest in (b"", b'{"refused": "token"}\n')
            writer.close()
            assert b"nonce" in greeting
            assert reports.all == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ray": "2.59.0"}, "algo-2 does not fit: it has ray 2.59.0, the head has ray 2.60.0"),
        ({"payload": "q"}, "its payload is not the head's: the digests differ"),
    ],
)
def test_a_worker_with_another_payload_or_version_is_refused_with_the_reason(change, words):
    async def scenario():
        async with head() as (server, reports):
            with pytest.raises(Refused) as caught:
                await join(server, identity=replace(IDENTITY, **change))
            assert words in str(caught.value)
            assert reports.all == [Mismatch("algo-2", str(caught.value))]

    asyncio.run(scenario())


def test_a_host_that_is_no_worker_of_the_job_is_refused():
    async def scenario():
        async with head() as (server, reports):
            with pytest.raises(Refused, match="'algo-9' is no worker of this job"):
                await join(server, host="algo-9")
            assert (server.joined, reports.all) == (frozenset(), [])

    asyncio.run(scenario())


def test_a_connection_that_ends_without_goodbye_is_a_loss_at_both_ends():
    async def scenario():
        async with head() as (server, reports):
            relay, worker = await through(spy := Spy(server.port), server)
            async with running(worker) as heard:
                await reports.wait_for(lambda report: report == Joined("algo-2"))
                spy.end()
                assert await reports.wait_for(
                    lambda report: report == Lost("algo-2", "closed its connection")
                )
                assert await heard.wait_for(
                    lambda report: report == Lost("algo-1", "closed its connection")
                )
            relay.close()

    asyncio.run(scenario())


def test_a_head_that_ends_reports_no_worker_as_lost():
    async def scenario():
        async with head() as (server, reports):
            async with running(await join(server)):
                await server.close()
                await reports.wait_for(lambda report: report == Left("algo-2"))
        assert reports.all == [Joined("algo-2"), Left("algo-2")]

    asyncio.run(scenario())


def test_a_worker_that_reads_nothing_is_dropped_before_its_messages_fill_the_memory():
    async def scenario():
        async with head() as (server, reports):
            worker = await join(server)  # and nobody lets it read
            for _ in range(16):
                server.tell("algo-2", {"kind": "ray", "text": "x" * (1 << 20)})
            lost = await reports.wait_for(lambda report: isinstance(report, Lost))
            assert lost == Lost("algo-2", "does not take what is sent to it")
            await worker.leave()

    asyncio.run(scenario())


@pytest.mark.parametrize("has_left", [False, True])
def test_a_second_worker_of_one_name_is_refused_and_the_first_stays_as_it_is(has_left):
    async def scenario():
        async with head() as (server, reports):
            first = await join(server)
            async with running(first):
                if has_left:
                    await first.leave()
                    await reports.wait_for(lambda report: report == Left("algo-2"))
                with pytest.raises(Refused):
                    await join(server)
                if not has_left:
                    first.tell({"kind": "still here"})
                    await reports.wait_for(lambda report: isinstance(report, MessageReceived))
                assert reports.all.count(Joined("algo-2")) == 1

    asyncio.run(scenario())


def test_a_worker_that_falls_silent_is_lost_after_the_silence_that_is_allowed():
    async def scenario():
        async with head(silence_s=0.4) as (server, reports):
            worker = await join(server)  # and nobody lets it beat
            begun = time.monotonic()
            assert await reports.wait_for(
                lambda report: report == Lost("algo-2", "said nothing for 0.4 s")
            )
            assert time.monotonic() - begun > 0.4
            worker._peer.line.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "event",
    [life.Invited(6379), life.JobEnded("ValueError: no"), life.OutputsTaken(("a", "b"), ("c",))],
)
def test_a_worker_reads_what_the_head_writes(event):
    assert control.decode(json.loads(json.dumps(control.encode(event))), control.TO_WORKER) == event


@pytest.mark.parametrize(
    "event",
    [
        life.RayLost("algo-2", "restart 1 of 3"),
        life.Lost("algo-2", "Ray on algo-2 ended"),
        control.OutputsClaimed("algo-2", ("a", "b"), 7),
        control.FileLeft("a/b.pt", 7, "0f"),
    ],
)
def test_the_head_reads_what_a_worker_writes_and_knows_whose_it_is(event):
    message = json.loads(json.dumps(control.encode(event)))
    assert control.decode(message | {"host": "algo-3"}, control.TO_HEAD, "algo-2") == event


@pytest.mark.parametrize(
    "message",
    [
        {"kind": "hello again"},
        {"kind": "Invited"},
        {"kind": "Invited", "port": "6379"},
        {"kind": "OutputsTaken", "keys": "a"},
        {"kind": "Lost", "reason": 7},
        {"kind": "FileLeft", "name": "a"},
    ],
)
def test_what_is_not_known_or_has_another_form_is_passed_over(message):
    assert control.decode(message, control.TO_WORKER) is None
    assert control.decode(message, control.TO_HEAD, "algo-2") is None


def test_a_reason_of_any_length_and_script_fits_one_line():
    assert (
        len(json.dumps(control.encode(life.JobEnded("\N{GRINNING FACE}" * 5000)))) < MAX_LINE - 100
    )


def test_the_keys_that_are_asked_about_at_a_time_fit_one_line_and_so_does_the_answer(tmp_path):
    paths = Paths(tmp_path)
    paths.model.mkdir()
    for number in range(PIECE + 1):
        (paths.model / f"{number}").touch()
    pieces = list(in_pieces(read_outputs(paths)))
    assert [len(keys) for keys in pieces] == [PIECE, 1]
    half = PIECE // 2
    for message in (
        control.encode(control.OutputsClaimed("", tuple(pieces[0]), 2**62)),
        control.encode(life.OutputsTaken(tuple(pieces[0][:half]), tuple(pieces[0][half:]))),
    ):
        assert len(json.dumps(message)) < MAX_LINE - 100


async def ask(server, token=TOKEN):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=MAX_LINE)
    try:
        return await ask_head(reader, writer, token, {"kind": "stacks"})
    finally:
        writer.close()


def test_client_with_the_token_is_answered_in_any_length_and_is_no_worker():
    text = "0123456789" * PART

    async def answer(question):
        assert question["kind"] == "stacks"
        return text

    async def run():
        async with head(answer=answer) as (server, reports):
            assert await ask(server) == text
            assert server.joined == frozenset()
            assert reports.all == []

    asyncio.run(run())


def test_client_without_the_token_is_refused():
    async def answer(question):
        raise AssertionError(question)

    async def run():
        async with head(answer=answer) as (server, _):
            with pytest.raises(TokenRefused):
                await ask(server, b"another token")
            assert server.refused == 1

    asyncio.run(run())
