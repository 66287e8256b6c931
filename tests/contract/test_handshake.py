"""How the two ends of a connection prove that they have the job's token."""

import asyncio
import socket

import pytest

from raysm.contract import handshake
from raysm.contract.handshake import GREETING, NotProved, connect_proved, prove_client, prove_server

TOKEN = b"t" * 64


class Tap:
    """A pair of connected sockets whose bytes are kept."""

    def __init__(self):
        self.server, self.client = socket.socketpair()
        for end in (self.server, self.client):
            end.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.close()
        self.client.close()


def shaken(*, server=TOKEN, client=TOKEN, server_port=7, client_port=7):
    """Return what each end raised."""

    async def go():
        with Tap() as tap:

            async def serve():
                try:
                    await prove_server(tap.server, server, server_port)
                finally:
                    tap.server.shutdown(socket.SHUT_RDWR)

            return await asyncio.gather(serve(), prove_client(tap.client, client, client_port), return_exceptions=True)

    return asyncio.run(go())


def test_two_ends_with_the_token_are_let_in():
    assert shaken() == [None, None]


@pytest.mark.parametrize(
    "how", [{"client": b"another"}, {"server": b"another"}, {"server_port": 8}], ids=["client", "server", "port"]
)
def test_of_two_that_differ_the_server_says_nothing_that_depends_on_the_token(how):
    at_server, at_client = shaken(**how)
    assert isinstance(at_server, NotProved)
    assert isinstance(at_client, ConnectionResetError)


def dialogue(answers):
    """Run a client against a server that says ``answers`` in turn; return what the client sent, and raised."""

    async def go():
        loop = asyncio.get_running_loop()
        with Tap() as tap:
            proving = asyncio.ensure_future(prove_client(tap.client, TOKEN, 7))
            heard = b""
            for answer in answers:
                await loop.sock_sendall(tap.server, answer)
                if answer is not answers[-1]:
                    heard += await loop.sock_recv(tap.server, 1000)
            (error,) = await asyncio.gather(proving, return_exceptions=True)
            return heard, error

    return asyncio.run(go())


def test_a_client_sends_nothing_to_what_speaks_another_protocol():
    heard, error = dialogue([b"HTTP/1.1 200 OK\r\n" + b"x" * 100])
    assert (heard, str(error)) == (b"", "it speaks another protocol")


def test_a_server_that_only_pretends_learns_no_token_and_is_refused():
    heard, error = dialogue([GREETING + b"n" * 32, b"x" * 32])
    assert isinstance(error, NotProved)
    assert len(heard) == 64
    assert TOKEN not in heard


def test_the_answers_of_yesterday_prove_nothing_today():
    sent, proofs = [], []

    async def once():
        loop = asyncio.get_running_loop()
        with Tap() as tap:
            proving = asyncio.ensure_future(prove_client(tap.client, TOKEN, 7))
            await loop.sock_sendall(tap.server, GREETING + b"n" * 32)
            sent.append(await loop.sock_recv(tap.server, 1000))
            # What a real server said to the same number the first time.
            proofs.append(proofs[0] if proofs else handshake._proof(TOKEN, b"server", b"n" * 32, sent[0][:32], 7))
            await loop.sock_sendall(tap.server, proofs[-1])
            return (await asyncio.gather(proving, return_exceptions=True))[0]

    assert asyncio.run(once()) is None
    assert isinstance(asyncio.run(once()), NotProved)
    assert sent[0] != sent[1]


def test_what_listens_elsewhere_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        async def go():
            connecting = asyncio.ensure_future(connect_proved("127.0.0.1", port, token="t", server_port=port))
            caller, _ = await asyncio.to_thread(server.accept)
            with caller:
                caller.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" + b"x" * 100)
                await connecting

        with pytest.raises(NotProved, match=f"what listens at 127.0.0.1, port {port}, is not the job's session"):
            asyncio.run(go())
