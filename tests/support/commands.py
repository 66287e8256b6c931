"""What the instances of a job tell, for tests of the commands that show it, and what command lines ask for."""

import time

import pytest

from raysm.cli.arguments import parse
from raysm.cli.config import read_settings
from raysm.cli.sending import prepared
from raysm.core.protocol import events

NOW_MS = int(time.time() * 1000) - 60_000  # moto takes no lines of long ago


def tell(remote, job, *told):
    lines = [(NOW_MS + at, events.line(event)) for at, event in enumerate(told)]
    remote.write_log(job.name, "algo-1", lines)


def request_of(*argv):
    """Return the request of a job that a command line asks for."""
    return prepared(read_settings(parse(argv))).request


def refusal(capsys, *argv):
    """Return what the command says of arguments that it refuses."""
    with pytest.raises(SystemExit) as caught:
        parse(argv)
    assert caught.value.code == 2
    return capsys.readouterr().err
