"""Between which two a plugin stands, as each of the documents' plugins keeps to it."""

import asyncio
import inspect

import pytest

from raysm.local.server.ssm.documents import DOCUMENTS
from raysm.local.server.ssm.plugin import Ends, Plugin
from tests.support.ssm import Here

PARAMETERS = {"portNumber": ["1"], "command": ["true"]}


async def send(payload_type, payload):
    pass


def ends(**more):
    return Ends(instance=Here(), send=send, **more)


def test_client_and_agent_multiplex_unless_it_is_said():
    assert ends().multiplexes
    assert not ends(multiplexes=False).multiplexes


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("multiplexes", [True, False])
def test_what_a_document_begins_is_a_plugin(document, multiplexes):
    async def begin():
        plugin = DOCUMENTS[document](PARAMETERS).begin(ends(multiplexes=multiplexes))
        for name in ("run", "take", "close"):
            promised = inspect.signature(getattr(Plugin, name)).parameters
            assert list(inspect.signature(getattr(type(plugin), name)).parameters) == list(promised)
        # Nothing has begun: an end before the beginning is no error, and may be repeated.
        await plugin.close()
        await plugin.close()

    asyncio.run(begin())
