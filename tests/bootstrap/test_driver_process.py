"""The driver's output."""

import os
import sys

from raysm.bootstrap.children import Children
from raysm.bootstrap.driver import TAIL_BYTES, DriverProcess
from tests.support.own_process import run_apart


def run(code, tmp_path):
    async def scenario():
        children = Children()
        driver = DriverProcess(children, [sys.executable, "-S", "-c", code], os.environ, tmp_path)
        status = await driver.child.wait(90)
        tail = driver.tail()
        await children.end_all(0)
        driver.close()
        children.close()
        return status, tail

    return run_apart(scenario)


def test_stderr_goes_on_to_the_log_and_its_end_is_kept(tmp_path, capfdbinary):
    status, tail = run("import sys; sys.stderr.write('x' * 20000 + 'the end'); sys.exit(2)", tmp_path)
    assert status == 2
    assert len(tail) == TAIL_BYTES
    assert tail.endswith("xthe end")
    assert len(capfdbinary.readouterr().err) == 20007


def test_a_grandchild_that_keeps_stderr_open_holds_nobody_up(tmp_path):
    status, tail = run("import subprocess, sys; subprocess.Popen(['sleep', '60']); sys.stderr.write('said')", tmp_path)
    assert (status, tail) == (0, "said")


def test_a_progress_bar_and_a_print_are_lines_of_their_own(tmp_path, capfdbinary):
    bar = "import sys; sys.stderr.write('\\r10%\\r20%'); print('step'); sys.stderr.write('\\r30%\\n')"
    assert run(bar, tmp_path)[0] == 0
    captured = capfdbinary.readouterr()
    assert captured.out == b"step\n"
    assert captured.err == b"10%\n30%\n"
