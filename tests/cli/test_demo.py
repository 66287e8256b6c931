"""The data of ``raysm demo``; tests/cli/test_main.py runs it."""

from pathlib import Path

from raysm.cli import demo

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


def test_the_data_that_raysm_carries_are_those_of_the_examples_with_their_licence():
    carried = {path.name: path.read_bytes() for path in demo.DATA.iterdir()}
    assert carried == {path.name: path.read_bytes() for path in EXAMPLES.iterdir()}
