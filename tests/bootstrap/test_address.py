"""Names, ports and what to say when they do not answer."""

import asyncio
import socket
import threading

import pytest

from raysm.bootstrap import address
from raysm.bootstrap.address import Interface


def test_a_resolver_that_hangs_holds_nobody_up():
    release = threading.Event()

    async def scenario():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(address.resolve("algo-1", lambda host: str(release.wait(90))), 0.1)

    asyncio.run(scenario())
    release.set()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(), "the name algo-1 does not resolve"),
        (ConnectionRefusedError(), "algo-1 refuses connections on port 6380: nothing listens there"),
        (TimeoutError(), "a firewall or security group may drop the packets"),
        (OSError("no route to host"), "algo-1, port 6380: no route to host"),
    ],
)
def test_an_error_becomes_a_cause(error, words):
    assert words in address.explain(error, "algo-1", 6380)


ETH0, ETH1 = Interface("eth0", "10.0.0.5"), Interface("eth1", "10.0.1.5")
LO = Interface("lo", "127.0.0.1")


def own_address(*interfaces, named=None, told=None, names=()):
    """Return what an instance finds out, and the names that it asked for on the way."""
    asked = []

    def lookup(host):
        asked.append(host)
        if host not in names:
            raise socket.gaierror
        return names[host]

    found = asyncio.run(address.find_own_address("algo-1", named, told, lambda: interfaces, lookup))
    return found, asked


def test_the_address_of_the_only_interface_is_found_without_asking_for_a_name():
    wrong = {"algo-1": "10.66.66.66"}
    assert own_address(LO, ETH0, names=wrong) == ("10.0.0.5", [])


def test_of_several_interfaces_the_one_that_the_name_means_is_found():
    assert own_address(LO, ETH0, ETH1, names={"algo-1": "10.0.1.5"}) == ("10.0.1.5", ["algo-1"])


@pytest.mark.parametrize("names", [{}, {"algo-1": "127.0.0.1"}])
def test_a_name_that_does_not_resolve_or_to_loopback_hinders_nothing(names):
    assert own_address(LO, ETH0, ETH1, names=names)[0] in ("10.0.0.5", "10.0.1.5")


def test_an_address_that_was_told_is_taken_as_it_is():
    assert own_address(LO, ETH0, named="algo-1.inside", names={"algo-1.inside": "10.0.0.8"})[0] == "10.0.0.8"
    assert own_address(LO, ETH0, named="127.0.0.1", names={"127.0.0.1": "127.0.0.1"})[0] is None


def test_another_instance_whose_name_means_this_one_is_not_called():
    with pytest.raises(address.MisleadingName) as caught:
        asyncio.run(address.resolve_peer("algo-1", lambda host: "127.0.0.1"))
    words = "the name algo-1 resolves to 127.0.0.1 here, which is this instance itself"
    assert address.explain(caught.value, "algo-1", 6380) == words
