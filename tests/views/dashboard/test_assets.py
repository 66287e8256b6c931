"""The files of Ray's page: from this machine where they can be."""

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest
import ray
from aiohttp import web

from raysm.views.dashboard.assets import Assets, installed_build, safe_name
from raysm.views.dashboard.parts import PageRequest
from raysm.views.dashboard.upstream import Upstream
from tests.support.dashboard_head import TOKEN, Answer, told, way_to


def answers(head, cache, *paths, method="GET"):
    """Return what the files of one cluster's page are answered with, as paths of this machine."""

    async def run():
        upstream = Upstream(partial(way_to, head), TOKEN)
        assets = Assets(upstream, cache)
        try:
            asked = [PageRequest(path=path, query="", request=SimpleNamespace(method=method)) for path in paths]
            return [getattr(await assets.answer(one), "_path", None) for one in asked]
        finally:
            await upstream.close()

    return asyncio.run(run())


@pytest.mark.parametrize(
    "path", ["../secret", "static/../../x", "static/%2e%2e/x", "static/.x", "api/jobs/", "", "/etc/passwd", "static\\x"]
)
def test_nothing_but_the_pages_own_files_has_a_name(path):
    assert safe_name(path) is None


def test_the_page_of_the_installed_ray_is_found_where_it_is_the_wanted_version():
    assert (installed_build(ray.__version__) / "index.html").is_file()
    assert installed_build() == installed_build(ray.__version__)
    assert installed_build("1.0") is None


def test_of_the_same_version_nothing_is_brought(head, tmp_path):
    head.answers["api/version"] = told({"ray_version": ray.__version__, "ray_commit": "0" * 40})
    name = next((installed_build() / "static" / "js").glob("main.*.js")).relative_to(installed_build())
    assert answers(head, tmp_path, str(name)) == [installed_build() / name]
    assert head.paths() == ["api/version"]


def test_a_file_that_this_version_has_not_is_not_there(head, tmp_path):
    head.answers["api/version"] = told({"ray_version": ray.__version__, "ray_commit": "0" * 40})
    with pytest.raises(web.HTTPNotFound):
        answers(head, tmp_path, "static/js/other.js")


def test_of_another_version_a_file_is_brought_once_and_kept(head, tmp_path):
    head.answers["static/js/main.1.js"] = Answer(b"program")
    for _ in range(2):
        (path,) = answers(head, tmp_path, "static/js/main.1.js")
        assert path.read_bytes() == b"program"
        assert path.is_relative_to(tmp_path)
    assert head.paths().count("static/js/main.1.js") == 1


def test_builds_of_one_version_do_not_share_files(head, tmp_path):
    head.answers["static/main.js"] = Answer(b"one")
    first = answers(head, tmp_path, "static/main.js")
    head.answers["api/version"] = told({"ray_version": "2.59.9", "ray_commit": "another"})
    assert answers(head, tmp_path, "static/main.js") != first


def test_what_is_no_file_of_the_page_is_anothers_part(head, tmp_path):
    assert answers(head, tmp_path, "api/jobs/") == [None]
    assert answers(head, tmp_path, "static/x", method="POST") == [None]
    assert head.requests == []
