"""examples/notebook.ipynb: the file as it lies there, and what it does in a real kernel."""

import json
import re
import shutil
from pathlib import Path

import pytest

import raysm
from tests.support.kernels import run_cells

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "notebook.ipynb"


def sources():
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def outputs(cell, kind):
    """Return what a cell printed (``stream``), or shows, of one MIME type, as one text."""
    texts = [
        output["text"] if kind == "stream" else output.get("data", {}).get(kind, "")
        for output in cell["outputs"]
        if kind != "stream" or output["output_type"] == "stream"
    ]
    return "".join("".join(text) for text in texts)


def test_outputs_are_not_kept_in_the_file():
    cells = [
        cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


def test_each_name_of_raysm_in_a_cell_is_there():
    named = {name for source in sources() for name in re.findall(r"\braysm\.([A-Za-z_]+)", source)}
    assert len(named) > 5
    assert not [name for name in named if not hasattr(raysm, name)]


# What follows runs a session and three jobs of two instances, among them a sweep of twelve trainings.
# Each cell does what another test shows: a session of a notebook (test_docs), a loop (test_tutorial),
# a similarity and a sweep (jobs), their plots and the table of jobs (features/experiments).
TOKEN = """
import pathlib
from raysm.core.client.job.handle import token_of
pathlib.Path("token").write_text(token_of(session.job))"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def ran(folder, home):
    """The code cells with their outputs."""
    for package in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(package)
    shutil.copytree(EXAMPLES / "data", folder / "data")
    cells = sources()
    (start,) = (number for number, cell in enumerate(cells) if "%raysm start" in cell)
    return run_cells(folder, *cells[: start + 1], TOKEN, *cells[start + 1 :])


def cell_with(ran, text):
    (cell,) = (cell for cell in ran if text in "".join(cell["source"]))
    return cell


@pytest.mark.soak
def test_a_session_of_two_instances_is_looked_at_and_closed(ran):
    assert outputs(cell_with(ran, "%%raysm"), "stream") == "10 means from 2 instances\n"
    assert "<iframe" in outputs(cell_with(ran, "%raysm dashboard"), "text/html")
    assert (
        outputs(cell_with(ran, "%raysm close"), "stream")
        == "the session digits-notebook is closed\n"
    )


@pytest.mark.soak
def test_the_nearest_digits_are_mostly_the_same_digit(ran):
    cell = cell_with(ran, "raysm.Similarity(")
    assert float(re.search(r"([0-9.]+)% of the nearest", outputs(cell, "stream"))[1]) > 95
    assert outputs(cell, "image/png")


@pytest.mark.soak
def test_the_network_learns_and_its_curves_are_drawn(ran):
    assert "model.safetensors" in outputs(cell_with(ran, "raysm.DataParallel("), "text/plain")
    assert "<svg" in outputs(cell_with(ran, "job.plot("), "image/svg+xml")


@pytest.mark.soak
def test_twelve_trials_are_swept_and_drawn(ran):
    assert "<svg" in outputs(cell_with(ran, "found.plot()"), "image/svg+xml")
    best = outputs(cell_with(ran, "found.best"), "text/plain")
    assert float(re.search(r"'accuracy': ([0-9.]+)", best)[1]) > 0.85


@pytest.mark.soak
def test_the_table_has_the_three_jobs(ran):
    assert outputs(cell_with(ran, "raysm.jobs("), "text/html").count("<tr>") == 4


@pytest.mark.soak
def test_no_token_is_in_the_saved_notebook(ran, folder):
    token = (folder / "token").read_text().strip()
    assert len(token) > 30
    assert token not in json.dumps(ran)
