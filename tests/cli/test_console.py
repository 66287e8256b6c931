"""Tests of ``raysm.cli.console``."""

import contextlib
import errno
import io
import os
import signal
from types import SimpleNamespace

import pytest
from rich.control import Control
from rich.table import Table
from rich.text import Text

from raysm.cli import sending
from raysm.cli.console import Console
from raysm.cli.display import Display
from raysm.cli.interrupts import Interrupted, interruptible
from raysm.cli.sending import follow
from raysm.core.client.job.description import Status
from raysm.core.client.logs.stream import LogLine


class Terminal(io.StringIO):
    """Gets a signal in the midst of writing the line that says so."""

    def write(self, text):
        written = super().write(text)
        if "now" in text:
            signal.raise_signal(signal.SIGINT)
        return written


@pytest.mark.parametrize("as_table", [False, True])
def test_a_console_prints_its_own_controls_and_escapes_those_of_the_text(as_table):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    text = Text("\x1b[31mred\x1b]0;title\x07", style="bold")
    table = Table.grid()
    table.add_row(text)
    console.print(table if as_table else text)
    console.control(Control.bell())
    assert "\x1b[31mred\\x1b]0;t" in out.getvalue()
    assert out.getvalue().startswith("\x1b[1m")
    assert out.getvalue().endswith("\x07")


class RunningJob:
    """One of this machine that writes on and on."""

    name = "digits-1"
    service = SimpleNamespace(target=SimpleNamespace(is_billed=False))
    status = Status.STOPPING
    left_at_stop = staticmethod(lambda: "; it left model")

    def __init__(self, answer=None, end=Status.STOPPED):
        self.stops, self.end, self.describe = 0, end, lambda: SimpleNamespace(answer=answer or {})

    def lines(self, *, follow):
        for text in ("first", "now", "never"):
            yield LogLine(time_s=0.0, host="algo-1", text=text)

    def cancel(self):
        self.stops += 1
        # A key that is held must not interrupt the call that stops the job.
        signal.raise_signal(signal.SIGINT)

    def stop(self):
        if self.end is None:
            raise KeyboardInterrupt
        return self.end


@pytest.mark.parametrize(
    ("end", "has_state", "message"),
    [
        (Status.STOPPED, False, "stopped; it left model; raysm rm digits-1 removes it"),
        (
            Status.STOPPED,
            True,
            "stopped; it left model; the same command with --resume continues with what it saved; raysm rm digits-1",
        ),
        (None, False, "left digits-1, which is Stopping; raysm status digits-1 shows its end"),
    ],
)
def test_a_line_during_which_ctrl_c_comes_is_shown_once_and_the_last_says_how_the_job_is(
    end, has_state, message, tmp_path
):
    (tmp_path / "saved").touch()
    terminal, job = (
        Terminal(),
        RunningJob({"CheckpointConfig": {"S3Uri": tmp_path.as_uri()}} if has_state else {}, end),
    )
    with pytest.raises(Interrupted, match=f"^{message}"):
        follow(job, Display(Console(file=terminal, width=80)))
    first, now, stopping = terminal.getvalue().splitlines()
    assert (first, now) == ("algo-1 | first", "algo-1 | now")
    assert stopping.startswith("stopping digits-1: ")
    assert job.stops == 1


@pytest.fixture
def unread_console():
    """A console that writes into a pipe nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    with contextlib.suppress(BrokenPipeError), open(writes, "w") as stream:
        yield Console(file=stream, width=80)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_job_is_stopped_though_its_output_has_no_reader_any_more(
    unread_console, capfd, is_interrupted
):
    class Interrupted(RunningJob):
        def lines(self, *, follow):
            signal.raise_signal(signal.SIGINT)
            yield

    job = Interrupted() if is_interrupted else RunningJob()
    with pytest.raises(KeyboardInterrupt if is_interrupted else BrokenPipeError):
        follow(job, Display(unread_console))
    assert job.stops == 1
    assert "stopping digits-1" in capfd.readouterr().err


class FullDisk(io.StringIO):
    """Takes no line about the job."""

    def write(self, text):
        if "job" in text:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_job_whose_lines_no_disk_takes_is_stopped(capfd):
    job = RunningJob()
    with (
        pytest.raises(OSError, match=os.strerror(errno.ENOSPC)),
        Display(Console(file=FullDisk())) as display,
    ):
        follow(job, display, ("job digits-1",))
    assert job.stops


def test_a_job_is_stopped_though_the_exception_of_ctrl_c_was_lost():
    class Losing(RunningJob):
        def lines(self, *, follow):
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            yield LogLine(time_s=0.0, host="algo-1", text="first")

    job = Losing()
    with pytest.raises(Interrupted):
        follow(job, Display(Console(file=io.StringIO())))
    assert job.stops == 1


def test_ctrl_c_before_the_service_has_the_job_is_no_error(remote):
    ready = SimpleNamespace(
        request=SimpleNamespace(name="digits-1"),
        service=remote.service,
        send=lambda: signal.raise_signal(signal.SIGINT),
    )
    with pytest.raises(KeyboardInterrupt):
        sending.send(ready, Console(file=io.StringIO()))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_each_signal_is_an_interrupt_within_the_block_alone(name):
    number = getattr(signal, name)
    # Not as the tests were begun, perhaps by nohup.
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_a_command_that_nohup_began_outlives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
