"""What users are told of the dashboard."""

import asyncio
import socket

from raysm.bootstrap.dashboard import announce_dashboard
from raysm.contract.events import parse


def test_its_address_is_told_when_it_answers(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asyncio.run(announce_dashboard("algo-1", "10.0.0.1", port))
    told = parse(capsys.readouterr().out)
    assert (told.name, told.host, told.address) == ("dashboard", "algo-1", f"http://10.0.0.1:{port}")


def test_one_that_never_comes_up_is_told_too(capsys):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        asyncio.run(announce_dashboard("algo-1", "10.0.0.1", silent.getsockname()[1], limit_s=0.1))
    said = capsys.readouterr()
    assert said.err == "raysm: the dashboard has not come up within 0.1 s; the job goes on without it\n"
    assert not said.out
