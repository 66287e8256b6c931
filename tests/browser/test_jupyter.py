"""JupyterLab on a session's head in a real browser: on this loopback, and at the end of a tunnel."""

import socket
from pathlib import Path

import pytest

import raysm
from raysm.core.client.job.handle import token_of
from raysm.features.session.client.start import await_server
from tests.support.browsers import looking
from tests.support.jupyter import KERNEL, OpenNotebook, lab_environment
from tests.support.session_process import serving
from tests.support.stub_job import TOKEN, near

expect = pytest.importorskip("playwright.sync_api").expect
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("jupyterlab")

pytestmark = pytest.mark.browser

CELL = "import os\nprint('in', os.getcwd(), 6 * 7)"


def write_notebook(folder):
    path = folder / "there.ipynb"
    nbformat.write(
        nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)], metadata=KERNEL), path
    )
    return path


def run_there(browser, session, path, token, output):
    """Run the notebook's cell on the head until its output is there; return it as it is saved, seen without a token."""
    with session.jupyter() as shown, looking(browser) as (context, seen):
        page = context.new_page()
        page.goto(f"{shown.url}/tree/there.ipynb")
        opened = OpenNotebook(page, path).begin()
        opened.run()
        expect(opened.output(0)).to_contain_text(output)
        saved = opened.save("42")
        arguments = [
            line.read_bytes() for line in Path("/proc").glob("[0-9]*/cmdline") if line.exists()
        ]
        assert not any(
            shown.url.split("/")[3].encode() in line or token.encode() in line for line in arguments
        )
        assert token not in page.content()
        assert token not in "".join(seen.urls)
        assert token not in str(context.storage_state())
        assert all(
            url.startswith((f"{shown.url.removesuffix('lab')}", "data:", "blob:"))
            for url in seen.urls
        )
        assert context.cookies() == []
        # JupyterLab's page may report what it lacks.
        seen.errors.clear()
    assert token not in saved


def test_a_cell_runs_on_the_head_and_no_token_is_in_page_url_cookie_or_file(
    browser, tmp_path, monkeypatch
):
    for name, value in lab_environment(tmp_path / "own").items():
        monkeypatch.setenv(name, value)
    with serving(tmp_path) as port:
        session = near(tmp_path, port)
        run_there(
            browser, session, write_notebook(tmp_path / "work"), TOKEN, f"in {tmp_path / 'work'} 42"
        )
        session.detach()


class There:
    """A file on a head whose folders are not this machine's, read as one of this machine."""

    def __init__(self, session, path):
        self.name, self._session, self._path = path.name, session, path

    def read_text(self):
        return self._session.get(self.name, self._path).read_text()


@pytest.mark.namespace
def test_the_same_where_only_a_tunnel_leads_to_the_head(browser, home, tmp_path):
    own = lab_environment(tmp_path / "own")
    # With a loopback of its own the head is as far away as on AWS.
    with raysm.Session(on=raysm.Local(instance_kind="namespace"), environment=own) as session:
        _, port = await_server(session.job)
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=60)
        session.put(write_notebook(tmp_path))
        there = There(session, tmp_path / "there.ipynb")
        run_there(
            browser, session, there, token_of(session.job).strip(), f"in {session.state.folder} 42"
        )
