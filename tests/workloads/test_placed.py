"""Blocks that say where they run, and values that only look as if they did."""

from dataclasses import dataclass

import pytest

from raysm.workloads.placed import PlacedBlock, host_of, hosts_of, inputs_of


@dataclass(frozen=True)
class Full(PlacedBlock):
    host: str | None = "algo-2"
    needs: tuple[str, ...] = ("algo-1",)
    inputs: tuple[object, ...] = ("reference",)


@dataclass(frozen=True)
class Bare(PlacedBlock):
    """Has nothing to say."""


@dataclass(frozen=True)
class Lookalike:
    host: str = "algo-2"
    needs: str = "water"
    inputs: tuple[str, ...] = ("a", "b")


@pytest.mark.parametrize(
    ("block", "host", "hosts", "inputs"),
    [
        (Full(), "algo-2", ("algo-2", "algo-1"), ("reference",)),
        (Full(host=None), None, ("algo-1",), ("reference",)),
        (Bare(), None, (), ()),
        (Lookalike(), None, (), ()),
        ("rows 0 to 9", None, (), ()),
    ],
)
def test_only_a_placed_block_is_asked(block, host, hosts, inputs):
    assert (host_of(block), hosts_of(block), tuple(inputs_of(block))) == (host, hosts, inputs)
