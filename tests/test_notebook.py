"""examples/notebook.ipynb: the file as it lies there, and what it does in a real kernel."""

import json
import shutil
from pathlib import Path

import pytest

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
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)


TOKEN = """
import pathlib
from raysm.client.job.handle import token_of
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
    *cells, close = sources()
    return run_cells(folder, *cells, TOKEN, close)


def cell_with(ran, text):
    (cell,) = (cell for cell in ran if text in "".join(cell["source"]))
    return cell


@pytest.mark.long
def test_the_neighbors_of_the_digits_are_mostly_the_same_digit(ran):
    assert "of the ten nearest neighbors are the same digit" in outputs(cell_with(ran, "ray.put"), "stream")
    assert float(outputs(ran[3], "text/plain")) > 0.95


@pytest.mark.long
def test_the_training_learns_and_its_epochs_are_shown(ran):
    training = cell_with(ran, "session.run(train")
    assert outputs(training, "stream").count("epoch ") == 5
    assert "'accuracy': 0.8" in outputs(training, "text/plain")


@pytest.mark.long
def test_twelve_trials_are_swept(ran):
    assert outputs(cell_with(ran, "raysm.Sweep("), "text/html").count("<tr>") == 13


@pytest.mark.long
def test_dashboard_and_table_are_shown_and_the_session_is_closed(ran):
    assert "<iframe" in outputs(cell_with(ran, "%raysm dashboard"), "text/html")
    assert "digits-notebook" in outputs(cell_with(ran, "raysm.jobs("), "text/html")
    assert outputs(ran[-1], "stream") == "the session digits-notebook is closed\n"


@pytest.mark.long
def test_no_token_is_in_the_saved_notebook(ran, folder):
    token = (folder / "token").read_text().strip()
    assert len(token) > 30
    assert token not in json.dumps(ran)
