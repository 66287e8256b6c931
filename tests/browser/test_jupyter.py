"""JupyterLab on a session's head in a real browser, through the session's own server."""

from pathlib import Path

import pytest

from tests.support.browsers import looking
from tests.support.jupyter import OpenNotebook, lab_environment
from tests.support.session_process import serving
from tests.support.sessions import TOKEN
from tests.support.stub_job import near

expect = pytest.importorskip("playwright.sync_api").expect
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("jupyterlab")

pytestmark = pytest.mark.browser


@pytest.fixture
def session(tmp_path, monkeypatch):
    for name, value in lab_environment(tmp_path / "own").items():
        monkeypatch.setenv(name, value)
    with serving(tmp_path) as port:
        handle = near(tmp_path, port)
        yield handle
        handle.detach()


def test_a_cell_runs_on_the_head_and_no_token_is_in_page_url_cookie_or_file(browser, session, tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("import os\nprint('in', os.getcwd(), 6 * 7)")],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}},
    )
    path = tmp_path / "work" / "there.ipynb"
    nbformat.write(notebook, path)
    with session.jupyter() as shown, looking(browser) as (context, seen):
        page = context.new_page()
        page.goto(f"{shown.url}/tree/there.ipynb")
        opened = OpenNotebook(page, path).begin()
        opened.run()
        expect(opened.output(0)).to_contain_text(f"in {tmp_path / 'work'} 42")
        saved = opened.save("42")
        assert TOKEN not in page.content()
        assert TOKEN not in "".join(seen.urls)
        assert TOKEN not in str(context.storage_state())
        assert all(url.startswith((f"{shown.url.removesuffix('lab')}", "data:", "blob:")) for url in seen.urls)
        assert context.cookies() == []
        # JupyterLab's page may report what it lacks.
        seen.errors.clear()
    assert TOKEN not in saved
    arguments = [line.read_bytes() for line in Path("/proc").glob("[0-9]*/cmdline") if line.exists()]
    assert not any(shown.url.split("/")[3].encode() in line or TOKEN.encode() in line for line in arguments)
