"""Runners, and how the driver leaves."""

import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest

from raysm.errors import MissingDependency
from raysm.request import Workload
from raysm.workloads import runner
from raysm.workloads.runner import load_runner
from tests.support.driving import payload_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost(Workload):
    runner: ClassVar[str] = "no_such_module:LostRunner"


def test_a_module_that_the_image_lacks_is_named_with_what_needs_it():
    with pytest.raises(MissingDependency, match="lacks no_such_module, which the workload needs; add it to the requ"):
        load_runner(payload_of(Lost()), None)


IMPORT = f"import os, signal\nfrom {runner.__name__} import leave_on_sigterm\n"

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


def test_what_is_done_leaves_with_0_all_that_it_printed_and_nothing_that_waits_for_the_end():
    code = (
        f"import atexit\nfrom {runner.__name__} import leave\natexit.register(print, 'later')\nprint('said')\nleave()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (0, "said\n"), done.stderr
