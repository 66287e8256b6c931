"""The keeper of a container, with a stand-in for the docker command: whatever happens, the container is removed."""

import contextlib
import time

import pytest

from raysm.local.instances import docker_keeper
from tests.support.kept import WAIT_S, Kept

DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
echo "$*" >> calls
case "$1" in
  create) [ ! -e refuse ] || { cat refuse >&2; exit 125; } ;;
  inspect) echo "4711 172.17.0.2" ;;
  logs) echo "a line of the container" ;;
  wait) while [ ! -e ended ]; do sleep 0.02; done; cat ended ;;
  kill) echo "$2" > beside; mv beside signals ;;
esac
"""


class Container(Kept):
    """A keeper of a container of the stand-in."""

    def __init__(self, folder):
        (folder / "docker").write_text(DOCKER)
        (folder / "docker").chmod(0o755)
        super().__init__(docker_keeper, folder)

    def start(self):
        docker = [str(self.folder / "docker")]
        self.ask(op="start", docker=docker, create=["create", "--name=one", "image"], name="one", network="net")
        return self.answer()

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def end(self, code):
        (self.folder / "beside").write_text(f"{code}\n")
        (self.folder / "beside").rename(self.folder / "ended")


@pytest.fixture
def kept(tmp_path):
    with contextlib.closing(Container(tmp_path)) as one:
        yield one


def test_a_container_is_made_started_and_told_with_its_process_and_address(kept):
    assert kept.start() == {"event": "started", "pid": 4711, "address": "172.17.0.2"}
    assert [call.split()[0] for call in kept.calls()[:3]] == ["create", "start", "inspect"]


def test_its_end_is_told_after_its_last_lines_and_its_removal(kept):
    kept.start()
    kept.end(137)
    assert kept.answer() == {"event": "exited", "code": 137}
    assert "rm --force --volumes one" in kept.calls()
    assert kept.log() == "a line of the container\n"
    assert kept.process.wait(WAIT_S) == 0
    # The network is the parent's, which lives.
    assert not any(call.startswith("network rm") for call in kept.calls())


def test_the_container_goes_with_the_line_to_whoever_started_it(kept):
    kept.start()
    kept.process.stdin.close()
    assert kept.process.wait(WAIT_S) == 0
    assert "rm --force --volumes one" in kept.calls()
    assert kept.reports.read() == ""


def test_a_signal_is_passed_on_by_the_daemon(kept):
    kept.start()
    kept.ask(op="signal", number=15)
    deadline = time.monotonic() + WAIT_S
    while not (kept.folder / "signals").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert (kept.folder / "signals").read_text() == "--signal=15\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("No such image: image\n", "docker create: No such image: image"),
        ("Unable to find image\nSee 'docker run --help'.\n", "docker: Unable to find image"),
        ("", "docker create: exit code 125"),
    ],
)
def test_what_docker_refuses_is_told_in_its_words(kept, words, message):
    (kept.folder / "refuse").write_text(words)
    assert kept.start() == {"event": "error", "message": message}
