"""The command ``raysm dashboard``, against a service and a head of the test's own."""

import io
import json
import stat
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from rich.console import Console

from raysm.cli import dashboard
from raysm.cli.arguments import parse
from raysm.contract.events import State, line
from raysm.errors import JobNotFound
from tests.support.client_jobs import NOW_MS


@pytest.fixture
def running(remote, job):
    """A job whose dashboard has been announced; nothing here asks it."""
    remote.write_log(job.name, "algo-1", [(NOW_MS, line(State(name="dashboard", address="http://127.0.0.1:1")))])
    return job


def shown(remote, *argv, browse=lambda url: None, wait=lambda: None):
    out = io.StringIO()
    arguments = parse(["dashboard", *argv])
    dashboard.run(arguments, Console(file=out, width=80), remote.service, browse=browse, wait=wait)
    return out.getvalue()


def test_it_prints_the_address_and_what_it_is_worth(remote, running):
    url, *rest = shown(remote, running.name, "--no-open").splitlines()
    assert urlsplit(url).hostname == "127.0.0.1"
    assert "it gives access without a password" in " ".join(rest)


def test_the_browser_is_started_with_a_file_that_others_cannot_read(remote, running):
    seen = []

    def browse(url):
        path = Path(unquote(urlsplit(url).path))
        seen.append((path, stat.S_IMODE(path.stat().st_mode), path.read_text()))

    url = shown(remote, running.name, browse=browse).splitlines()[0]
    ((path, mode, page),) = seen
    assert mode == 0o600
    assert url in page
    assert url not in path.as_uri()
    assert not path.exists()


def test_without_a_browser_none_is_opened(remote, running):
    shown(remote, running.name, "--no-open", browse=pytest.fail)


def test_a_program_reads_the_address_as_json(remote, running, capsys):
    shown(remote, running.name, "--no-open", "--json")
    assert json.loads(capsys.readouterr().out)["url"].startswith("http://127.0.0.1:")


def test_ctrl_c_ends_the_showing(remote, running):
    def wait():
        raise KeyboardInterrupt

    assert shown(remote, running.name, "--no-open", wait=wait)


def test_a_name_that_there_is_not_is_refused_with_the_nearest(remote, running):
    with pytest.raises(JobNotFound, match=f"did you mean {running.name}"):
        shown(remote, f"{running.name}1", "--no-open")
