"""The card in a real kernel of marimo, without a browser: what its cells show is exported."""

import subprocess
import sys

import pytest

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
