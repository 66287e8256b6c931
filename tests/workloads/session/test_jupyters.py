"""Jupyter servers on the head of a session, with a program that stands in for JupyterLab."""

import asyncio
import datetime
import json
import stat
import sys
from contextlib import asynccontextmanager

import pytest

from raysm.errors import InvalidRequest, RaysmError
from raysm.workloads.session.jupyters import COMMAND, Jupyters, kernels_seen, settings
from tests.support import fake_jupyter

BASE = "/secret/"


@asynccontextmanager
async def some(tmp_path, command=fake_jupyter.COMMAND):
    jupyters = Jupyters(tmp_path, tmp_path, command)
    try:
        yield jupyters
    finally:
        await jupyters.close()


def test_a_server_is_private_busy_while_its_kernels_are_and_gone_with_the_session(tmp_path):
    async def go():
        async with some(tmp_path) as jupyters:
            name = await jupyters.start(BASE)
            folder, before = tmp_path / f"j{name}", await jupyters.look()
            (folder / "kernels").write_text(json.dumps([{"execution_state": "busy"}]))
            return stat.S_IMODE(folder.stat().st_mode), jupyters._running[name].process, before, await jupyters.look()

    mode, process, before, after = asyncio.run(go())
    assert mode == 0o700
    assert process.returncode is not None
    # An open page is no work.
    assert (before.running, before.idle_s, after.running) == (0, None, 1)


def test_one_that_does_not_come_up_is_told_with_the_end_of_its_log_and_tried_anew(tmp_path):
    async def go():
        async with some(tmp_path, fake_jupyter.FAILING) as jupyters:
            for _ in range(2):
                with pytest.raises(RaysmError, match="did not start on the head; its log ends so:\nthe reason"):
                    await jupyters.start(BASE)
            assert jupyters._running == {}

    asyncio.run(go())


@pytest.mark.parametrize("base", ["", "/", "x/", "/x", "/a b/", "//x/"])
def test_a_path_that_is_none_is_refused(tmp_path, base):
    with pytest.raises(InvalidRequest, match="begins and ends with /"):
        asyncio.run(Jupyters(tmp_path, tmp_path, COMMAND).start(base))


def test_a_head_without_jupyterlab_is_named_with_the_remedy(tmp_path):
    with pytest.raises(InvalidRequest, match=r"has no JupyterLab: .*requirements=\['jupyterlab'\]"):
        asyncio.run(Jupyters(tmp_path, tmp_path, (sys.executable, "-m", "no_such_jupyterlab")).start(BASE))


def test_the_last_kernel_that_was_busy_tells_since_when_none_is():
    at = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    rows = [
        {"execution_state": "idle", "last_activity": (at - datetime.timedelta(seconds=ago)).isoformat()}
        for ago in (90, 30)
    ]
    seen = kernels_seen(rows, at.timestamp())
    assert (seen.running, seen.idle_s) == (0, pytest.approx(30))
    assert kernels_seen([], 0.0).idle_s is None
    # The clock may have been set back meanwhile.
    assert kernels_seen(rows, 0.0).idle_s == 0.0


def test_its_settings_have_no_token_and_no_port(tmp_path):
    told = settings(BASE, tmp_path / "s", tmp_path)
    assert told["IdentityProvider"] == {"token": ""}
    assert told["ServerApp"]["sock"] == str(tmp_path / "s")
    assert told["ServerApp"]["sock_mode"] == "0600"
    assert "port" not in told["ServerApp"]
