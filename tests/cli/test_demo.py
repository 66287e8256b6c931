"""The first command of a user who has nothing but raysm."""

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from raysm.cli import demo
from raysm.cli.arguments import parse
from raysm.errors import InvalidRequest

EXAMPLES = Path(__file__).parents[2] / "examples" / "data"

NEIGHBORS = [
    {"row": 0, "neighbors": [2, 1], "similarities": [0.98765, 0.5]},
    {"row": 1, "neighbors": [0, 2], "similarities": [0.5, 0.25]},
]


def printed(item):
    text = io.StringIO()
    Console(file=text, width=100).print(item)
    return text.getvalue()


def test_the_data_that_raysm_carries_are_those_of_the_examples_with_their_licence():
    carried = {path.name: path.read_bytes() for path in demo.DATA.iterdir()}
    assert carried == {path.name: path.read_bytes() for path in EXAMPLES.iterdir()}


def test_an_output_that_cannot_be_is_refused_before_anything_starts(tmp_path):
    (tmp_path / "file").write_text("mine")
    text = io.StringIO()
    with pytest.raises(InvalidRequest, match="file"):
        demo.run(parse(["demo", "--output", str(tmp_path / "file")]), Console(file=text))
    assert text.getvalue() == ""


@pytest.mark.usefixtures("home")
def test_a_whole_job_runs_and_some_of_its_result_is_shown(tmp_path):
    text = io.StringIO()
    output = tmp_path / "out"
    demo.run(parse(["demo", "--instances", "1", "--output", str(output)]), Console(file=text, width=100))
    said = text.getvalue()
    assert "A job of 1 emulated instance forms" in said
    assert "Completed · 1 local instance" in said
    assert "877 (a 0, 0.9807)" in said
    assert "98.9 % of all rows" in said
    assert pq.read_metadata(output / "neighbors.parquet").num_rows == 1797
