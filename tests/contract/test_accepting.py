"""Connections that come while their server ends."""

import asyncio
import socket

from raysm.contract.accepting import accept_no_more


async def connected(count, end):
    """Let so many connect to a server that then ends by ``end``; return of how many it knew."""
    known = []
    server = await asyncio.start_server(lambda _, writer: known.append(writer), "127.0.0.1", 0)
    browsers = [socket.create_connection(server.sockets[0].getsockname()) for _ in range(count)]
    # In the first turn of the loop it sees them, in the second it takes all of them, and has made nothing of them yet.
    for _ in range(2):
        await asyncio.sleep(0)
    assert known == []
    await end(server)
    server.close()
    await asyncio.sleep(0)
    for end_of_connection in (*known, *browsers):
        end_of_connection.close()
    await asyncio.sleep(0)
    return len(known)


def test_whoever_has_connected_is_known_to_the_server_before_it_ends():
    assert asyncio.run(connected(20, lambda server: accept_no_more(server.sockets))) == 20


def test_nobody_is_taken_any_more():
    async def ended():
        known = []
        server = await asyncio.start_server(lambda _, writer: known.append(writer), "127.0.0.1", 0)
        await accept_no_more(server.sockets)
        # The kernel still takes it, and lets it go with the socket.
        with socket.create_connection(server.sockets[0].getsockname()):
            for _ in range(10):
                await asyncio.sleep(0)
            server.close()
        return known

    assert asyncio.run(ended()) == []
