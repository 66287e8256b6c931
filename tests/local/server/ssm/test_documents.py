"""The documents of AWS: what their parameters make an agent do, and how wrong ones are refused."""

import asyncio

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.ssm.command import Command
from raysm.local.server.ssm.documents import DOCUMENTS, SHELL, work_of
from raysm.local.server.ssm.plugin import Ends
from raysm.local.server.ssm.port import MuxPort, PlainPort
from tests.support.ssm import Here

PORT = "AWS-StartPortForwardingSession"
INTERACTIVE = "AWS-StartInteractiveCommand"
NON_INTERACTIVE = "AWS-StartNonInteractiveCommand"


def begun(work, *, multiplexes=True):
    async def begin():
        return work.begin(Ends(instance=Here(), send=lambda *_: None, multiplexes=multiplexes))

    return asyncio.run(begin())


def test_a_port_is_forwarded_as_client_and_agent_can():
    work = work_of(PORT, {"portNumber": ["8265"]})
    assert (work.session_type, work.properties["portNumber"]) == ("Port", "8265")
    assert isinstance(begun(work), MuxPort)
    assert isinstance(begun(work, multiplexes=False), PlainPort)


def test_a_port_that_nobody_names_is_that_of_the_web():
    assert work_of(PORT, {}).properties == {"portNumber": "80", "localPortNumber": "0", "type": "LocalPortForwarding"}


@pytest.mark.parametrize(
    ("document", "session_type"),
    [
        (SHELL, "Standard_Stream"),
        (INTERACTIVE, "InteractiveCommands"),
        (NON_INTERACTIVE, "NonInteractiveCommands"),
    ],
)
def test_commands_are_told_by_the_type_of_their_session(document, session_type):
    work = work_of(document, {"command": ["ls -l 'a b'"]})
    assert work.session_type == session_type
    assert isinstance(begun(work), Command)


def test_the_words_of_a_command_are_told_as_a_shell_would_read_them():
    work = work_of(INTERACTIVE, {"command": ["echo  'a b' c"]})
    assert work.properties["linux"]["commands"] == "echo 'a b' c"


def test_a_document_that_is_not_there_is_named():
    with pytest.raises(ApiError, match="Document with name No-Such does not exist") as raised:
        work_of("No-Such", {})
    assert raised.value.code == "InvalidDocument"
    assert "No-Such" not in DOCUMENTS


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "²", ""])
def test_a_port_that_is_none_is_refused_with_its_value(port):
    with pytest.raises(ApiError, match="portNumber") as raised:
        work_of(PORT, {"portNumber": [port]})
    assert repr(port) in str(raised.value)


@pytest.mark.parametrize("value", [["1", "2"], "1", [1]])
def test_a_parameter_is_one_string_in_a_list(value):
    with pytest.raises(ApiError, match="Parameter portNumber takes one string, in a list"):
        work_of(PORT, {"portNumber": value})


@pytest.mark.parametrize("document", [INTERACTIVE, NON_INTERACTIVE])
@pytest.mark.parametrize(("command", "reason"), [("'", "cannot be read"), (" ", "is required")])
def test_a_command_that_has_no_words_is_refused(document, command, reason):
    with pytest.raises(ApiError, match=f"Parameter command {reason}"):
        work_of(document, {"command": [command]})
