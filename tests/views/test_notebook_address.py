"""Where a page of this machine is seen from a notebook."""

import json

import pytest

from raysm.views.notebook_address import Server, running_servers, seen_from_notebook


def seen(environ, *, has_proxy=True, servers=()):
    return seen_from_notebook(8000, "secret", environ, servers=lambda: servers, is_installed=lambda name: has_proxy)


def test_without_a_notebooks_server_it_is_seen_where_it_is():
    shown = seen({})
    assert (shown.url, shown.in_frame) == ("http://127.0.0.1:8000/secret/", True)


def test_a_jupyter_server_of_this_machine_passes_it_on():
    servers = (Server(pid=7, base_url="/other/"), Server(pid=8, base_url="/base/"))
    assert seen({"JPY_PARENT_PID": "8"}, servers=servers).url == "/base/proxy/8000/secret/"


def test_a_jupyter_server_without_the_proxy_passes_nothing_on():
    environ, servers = {"JPY_PARENT_PID": "8"}, (Server(pid=8, base_url="/"),)
    assert seen(environ, has_proxy=False, servers=servers).url == "http://127.0.0.1:8000/secret/"
    assert seen({"JPY_PARENT_PID": "9"}, servers=servers).url == "http://127.0.0.1:8000/secret/"


@pytest.mark.parametrize("variable", ["VSCODE_PID", "VSCODE_CWD", "COLAB_RELEASE_TAG"])
def test_where_no_frame_can_show_it_there_is_a_link(variable):
    shown = seen({variable: "1"})
    assert (shown.url, shown.in_frame) == ("http://127.0.0.1:8000/secret/", False)


def test_the_servers_of_this_machine_are_those_that_left_a_record(tmp_path):
    (tmp_path / "jpserver-7.json").write_text(json.dumps({"pid": 7, "base_url": "/a/", "token": "t"}))
    (tmp_path / "jpserver-8.json").write_text("{")
    (tmp_path / "kernel-9.json").write_text(json.dumps({"pid": 9, "base_url": "/b/"}))
    assert running_servers(tmp_path) == [Server(pid=7, base_url="/a/")]
    assert running_servers(tmp_path / "none") == []
