"""The card in a real kernel: later cells run while it is drawn again, in the cell where it was shown first."""

import subprocess
import sys

import pytest

from tests.support.kernels import run_cells
from tests.support.marimos import watching_notebook
from tests.support.watched_jobs import BEGIN, END, TELL

pytest.importorskip("marimo")

WITHIN_S = 300

LAST = f"""
{TELL}
{END}
assert watching.wait(60)
"""


def test_a_card_is_drawn_again_in_its_cell_while_a_later_one_runs(tmp_path):
    notebook = watching_notebook(tmp_path, BEGIN, LAST)
    command = [sys.executable, "-m", "marimo", "-q", "export", "html", notebook.name, "-o", "out.html"]
    done = subprocess.run(
        [*command, "--no-include-code"], cwd=tmp_path, capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Outputs stand in the page as JSON, where < is written as a number.
    page = (tmp_path / "out.html").read_text().replace("\\u0026", "&").replace("\\u003c", "<")
    assert "Completed" in page
    assert "InProgress" not in page
    assert "&lt;script&gt;document.title" in page
    assert "<script>document.title" not in page


for package in ("nbformat", "nbclient", "ipykernel"):
    pytest.importorskip(package)

WATCH = "watching = job.watch()\nwatching"

LATER = """
assert not watching.wait(0)
print("a later cell runs")
hostile = "</pre></div><script>alert(1)</script>\\x1b[31m"
fake.lines[job.name] = (hostile, *(line(Metric(name="loss", value=1 / (step + 1), step=step)) for step in range(5)))
fake.is_over = True
assert watching.wait(60)
"""


def text(data):
    """Return what a notebook's file has as text or as lines."""
    return data if isinstance(data, str) else "".join(data)


WAIT = """
second = raysm.submit(raysm.Script("train.py"), on=fake, name="second", cluster=raysm.Cluster(count=2))
fake.is_over = False
try:
    second.wait(0.2)
except TimeoutError:
    pass
threading.Timer(1.0, lambda: setattr(fake, "is_over", True)).start()
second.result()
"""


def test_a_card_is_drawn_again_in_its_own_cell_and_a_cell_that_waits_shows_one(tmp_path):
    _, shown, later, after, waited, ended = run_cells(
        tmp_path, BEGIN, WATCH, LATER, "'the last cell'", f"import threading{WAIT}", "second.wait(); second.result()"
    )
    # The sweep or job that a cell waits for: one card, of its end, beside the result.
    (card,) = [output for output in waited["outputs"] if output["output_type"] == "display_data"]
    assert "Completed" in text(card["data"]["text/html"])
    assert "InProgress" not in text(card["data"]["text/html"])
    assert not [output for output in ended["outputs"] if output["output_type"] == "display_data"]
    (card,) = shown["outputs"]
    assert card["output_type"] == "display_data"
    html = text(card["data"]["text/html"])
    assert all(part in html for part in ("Completed", "0.2", "<path", "raysm.attach"))
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert "\x1b" not in html
    # What a reader without HTML has, GitHub's or a terminal's, is up to date too.
    assert "Completed" in text(card["data"]["text/plain"])
    assert [output["output_type"] for output in later["outputs"]] == ["stream"]
    assert text(after["outputs"][0]["data"]["text/plain"]) == "'the last cell'"
