"""The arguments of the commands about places."""

import argparse

import pytest

from raysm.cli.arguments import parse
from raysm.cli.market_arguments import names


def test_prices_are_of_all_types_and_regions_unless_some_are_named():
    arguments = parse(["prices"])
    assert (arguments.type, arguments.regions, arguments.refresh) == (None, [], False)
    arguments = parse(["prices", "ml.g5.xlarge", "--regions", "us-east-1, eu-west-1"])
    assert (arguments.type, arguments.regions) == ("ml.g5.xlarge", ["us-east-1", "eu-west-1"])


def test_a_list_of_names_has_each_once_and_none_empty():
    assert names("a,b,a") == ["a", "b"]
    with pytest.raises(argparse.ArgumentTypeError, match="is not a list of names"):
        names("")
