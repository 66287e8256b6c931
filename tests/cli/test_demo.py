"""The data of ``raysm demo``; tests/cli/test_main.py runs it."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from raysm.cli import demo
from raysm.cli.arguments import parse
from raysm.errors import InvalidRequest

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"


def test_the_data_that_raysm_carries_are_those_of_the_examples_with_their_licence():
    carried = {path.name: path.read_bytes() for path in demo.DATA.iterdir()}
    assert carried == {path.name: path.read_bytes() for path in EXAMPLES.iterdir()}


def test_an_output_that_cannot_be_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("mine")
    text = io.StringIO()
    with pytest.raises(InvalidRequest, match="file"):
        demo.run(parse(["demo", "--output", str(tmp_path / "file")]), Console(file=text))
    assert text.getvalue() == ""
