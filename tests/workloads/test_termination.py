"""How the driver leaves."""

import subprocess
import sys

import pytest

from raysm.workloads import termination

IMPORT = f"import os, signal\nfrom {termination.__name__} import leave_on_sigterm\n"

BODIES = {
    "in the middle of work": "os.kill(os.getpid(), signal.SIGTERM)",
    "where exceptions are swallowed": """
try:
    os.kill(os.getpid(), signal.SIGTERM)
except BaseException:
    pass
""",
    "after a library has put its own handler there": """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
leave_on_sigterm(lambda: print("cleaned", flush=True))
os.kill(os.getpid(), signal.SIGTERM)
""",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_process_leaves_at_once_with_143_and_cleans_up(body):
    code = f"{IMPORT}leave_on_sigterm(lambda: print('cleaned', flush=True))\n{body}\nprint('went on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (143, "cleaned\n"), done.stderr


def test_it_leaves_also_where_cleaning_up_fails():
    code = f"{IMPORT}leave_on_sigterm(lambda: 1 / 0)\nos.kill(os.getpid(), signal.SIGTERM)\n"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=90).returncode == 143


def test_what_is_done_leaves_with_0_all_that_it_printed_and_nothing_that_waits_for_the_end():
    code = (
        f"import atexit\nfrom {termination.__name__} import leave\n"
        "atexit.register(print, 'later')\nprint('said')\nleave()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (0, "said\n"), done.stderr
