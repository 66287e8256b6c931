"""Which network interface is the one that the other instances know."""

import pytest

from raysm.bootstrap.address import Interface, choose_interface

LO, ETH0, ETH1 = Interface("lo", "127.0.0.1"), Interface("eth0", "10.0.0.5"), Interface("eth1", "10.0.1.5")


def choose(*interfaces, told=None, own_name=None, default=None):
    chosen = choose_interface(interfaces, named=told, own_name=own_name, default=default)
    return chosen and chosen.name


def test_the_interface_that_the_service_tells_wins_over_the_host_s_name():
    assert choose(LO, ETH0, ETH1, told="eth1", own_name="10.0.0.5", default="10.0.0.5") == "eth1"


def test_where_none_is_told_the_one_that_the_host_s_name_means_wins_over_the_default_route():
    assert choose(LO, ETH0, ETH1, own_name="10.0.1.5", default="10.0.0.5") == "eth1"


@pytest.mark.parametrize("told", ["lo", "ib0", None])
def test_an_interface_that_is_not_there_or_loopback_is_not_taken(told):
    assert choose(LO, ETH0, told=told) == "eth0"
