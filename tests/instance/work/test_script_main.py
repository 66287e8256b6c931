"""A script in a job behaves as under ``python script.py``: each case runs both ways, and the outcomes are compared."""

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import psutil
import pytest
import ray

from raysm.core.protocol import script_main
from raysm.core.protocol.names import TRIAL
from raysm.core.request import Workload
from raysm.errors import InvalidRequest, MissingDependency
from raysm.instance.gcs_state import pending_socket, watch_pending
from raysm.instance.pending_requests import UnmetRequests, observe
from raysm.instance.work import report, runner
from raysm.instance.work.program import read_lines, start_program
from raysm.instance.work.runner import load_runner
from tests.support.driving import payload_of
from tests.support.waiting import until

# Python itself loses these since 3.12.
LEFT_GZIP = (
    "packed = gzip.GzipFile('packed.gz', 'wb', mtime=0)\npacked.write(b'packed')\n"
    "text = io.TextIOWrapper(gzip.GzipFile('text.gz', 'wb', mtime=0))\ntext.write('text')\n"
    "inner = open('inner.gz', 'wb')\nouter = gzip.GzipFile('', 'wb', fileobj=inner, mtime=0)\n"
    "outer.write(b'both')"
    if sys.version_info < (3, 12)
    else ""
)
ENDS = {
    "falls off its end": "print('done')",
    "exits with 0": "import sys; sys.exit(0)",
    "exits with 3": "import sys; sys.exit(3)",
    "exits with 256": "import sys; sys.exit(256)",
    "exits with a text": "import sys; sys.exit('no data')",
    "raises": "def layer(name):\n    raise ValueError(f'no such layer: {name}')\nlayer('conv9')",
    "raises a group": "raise ExceptionGroup('many', [ValueError(1), TypeError(2)])",
    "does not compile": "def f(:\n",
    "has a hook for exceptions": "import sys\nsys.excepthook = lambda *a: print('hook', a[0], a[2].tb_lineno)\n1 / 0",
    "is interrupted": "raise KeyboardInterrupt",
    "aborts": "import os\nos.abort()",
    "leaves without Python": "import os\nprint('x', flush=True)\nos._exit(7)",
    "waits for its threads": (
        "import threading, time\nsaid = threading.Event()\n"
        "def late():\n    said.wait()\n    time.sleep(0.3)\n    print('late', name)\n"
        "threading.Thread(target=late).start()\nname = 'main'\nprint('first')\nsaid.set()"
    ),
    "has a pool of threads": (
        "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(2)\n"
        "import time\npool.submit(lambda: (time.sleep(0.3), print('pooled')))"
    ),
    "abandons a daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()"
    ),
    "has exit handlers": (
        "import atexit\natexit.register(print, 'first')\natexit.register(lambda: print('second', value))\nvalue = 7"
    ),
    "has an exit handler that fails": "import atexit\n@atexit.register\ndef end():\n    raise ValueError('late')",
    "writes without a newline": "print('no newline', end='')",
    "replaces its output": (
        "import sys\nclass Upper:\n    def write(self, text): return sys.__stdout__.write(text.upper())\n"
        "    def flush(self): pass\nsys.stdout = Upper()\nprint('loud')"
    ),
    "closes its output": "import sys\nprint('x')\nsys.stdout.close()",
    "knows itself": (
        "import sys, inspect\ndef f(): return 1\nprint(__name__, sys.argv, __file__, __package__, __spec__, __doc__)\n"
        "print(sys.path, sorted(set(globals()) - {'__annotations__'}), type(__builtins__), type(__loader__))\n"
        "print(sys.modules['__main__'].f is f, inspect.getsource(f), [m for m in sys.modules if 'raysm' in m])"
    ),
    "imports its neighbour": "import neighbour\nprint(neighbour.VALUE, neighbour.__file__)",
    "starts processes": (
        "import multiprocessing as mp\ndef square(x): return x * x\nif __name__ == '__main__':\n"
        "    for how in ('fork', 'spawn', 'forkserver'):\n"
        "        with mp.get_context(how).Pool(1) as pool:\n            print(how, pool.map(square, [1, 2, 3]))"
    ),
    "leaves files open": (
        "import bz2, gzip, io, zipfile\nopened = open('plain.txt', 'w')\nopened.write('plain')\n"
        "binary = open('binary', 'wb')\nbinary.write(b'binary')\n"
        "bz = bz2.open('b.bz2', 'wt')\nbz.write('bz')\n"
        "archive = zipfile.ZipFile('a.zip', 'w')\n"
        "archive.writestr(zipfile.ZipInfo('name'), 'content')\n" + LEFT_GZIP
    ),
}

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def outcome(command, folder):
    """Return what is seen of a script's run: exit status, output, and the files that it leaves."""
    before = {path.name for path in folder.iterdir()}
    ended = subprocess.run(
        command,
        cwd=folder,
        env=BUFFERED,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=300,
        check=False,
    )
    left = {}
    for path in sorted(folder.iterdir()):
        if path.name not in before and path.is_file():
            left[path.name] = path.read_bytes()
            path.unlink()
    # Addresses of objects differ from run to run.
    return ended.returncode, ended.stdout, re.sub("0x[0-9a-f]+", "0x", ended.stderr), left


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS)
def test_a_script_that(text, tmp_path):
    script = tmp_path / "user.py"
    script.write_text(text + "\n")
    (tmp_path / "neighbour.py").write_text("VALUE = 3\n")
    arguments = ["--lr", 'it\'s "quoted"']
    expected = outcome([sys.executable, str(script), *arguments], tmp_path)
    assert outcome(script_main.command(str(script), arguments), tmp_path) == expected


def test_a_full_disk_under_its_output_fails_it_as_python_does(tmp_path):
    script = tmp_path / "user.py"
    script.write_text("print('x')\n")
    with open("/dev/full", "w") as full:
        for command in ([sys.executable, str(script)], script_main.command(str(script), [])):
            assert (
                subprocess.run(
                    command, stdout=full, stderr=subprocess.DEVNULL, env=BUFFERED, check=False
                ).returncode
                == 120
            )


ABORTS_AT_ITS_END = """
import atexit, ctypes
# What torch's static destructors do now and then: abort once Python has ended.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
atexit.register(print, "ended well")
"""


def test_what_aborts_after_pythons_end_fails_no_script(tmp_path):
    script = tmp_path / "user.py"
    script.write_text(ABORTS_AT_ITS_END)
    plain = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    assert plain.returncode == -6, "the case itself"
    ended = subprocess.run(
        script_main.command(str(script), []), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended well\n", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost(Workload):
    runner: ClassVar[str] = "no_such_module:LostRunner"


GROUPS = """
import gc, weakref
import torch
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
groups = [weakref.ref(dist.group.WORLD), weakref.ref(dist.new_group([0]))]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
dist.destroy_process_group()
del model
gc.collect()
print(dist.is_initialized(), [group() is not None for group in groups])
"""


# The destructor of one can wait forever, now and then: for a thread that waits for the GIL.
def test_process_groups_that_a_script_destroys_are_there_until_it_ends(tmp_path):
    (tmp_path / "script.py").write_text(GROUPS)
    command = [sys.executable, script_main.__file__, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "False [True, True]\n"


def test_a_module_that_the_image_lacks_is_named_with_what_needs_it():
    with pytest.raises(MissingDependency, match="no_such_module"):
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
    code = (
        f"{IMPORT}leave_on_sigterm(lambda: print('cleaned', flush=True))\n{body}\nprint('went on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (143, "cleaned\n"), done.stderr


def test_what_is_done_leaves_with_0_all_that_it_printed_and_nothing_that_waits_for_the_end():
    code = (
        f"import atexit\nfrom {runner.__name__} import leave\n"
        "atexit.register(print, 'later')\nprint('said')\nleave()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stdout) == (0, "said\n"), done.stderr


CHILD = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE).pid)"
FOREVER = "\nimport time\nprint('there')\ntime.sleep(600)"


def test_it_is_there_no_more_behind_its_block_and_neither_is_what_it_started(tmp_path):
    with start_program([sys.executable, "-c", CHILD + FOREVER], tmp_path) as process:
        child = psutil.Process(int(process.stdout.readline()))
        assert process.stdout.readline() == "there\n"
    assert process.returncode is not None
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 60)


@pytest.mark.parametrize("session", [False, True])
def test_its_lines_end_with_it_though_what_it_started_holds_its_output_open(tmp_path, session):
    left = f"subprocess.Popen(['sleep', '600'], start_new_session={session})"
    code = f"import subprocess; print({left}.pid); print('end', end='')"
    with start_program([sys.executable, "-c", code], tmp_path) as process:
        pid, last = read_lines(process, drain_s=0.1)
        assert (last, process.wait()) == ("end\n", 0)
    psutil.Process(int(pid)).kill() if session else None


def test_its_lines_come_as_it_writes_them_wherever_they_are_cut(tmp_path):
    code = "import os; [os.write(1, piece) for piece in (b'a', b'b\\r', b'\\nc\\xc3', b'\\xa9\\n\\xff\\n')]; input()"
    with start_program([sys.executable, "-c", code], tmp_path) as process:
        lines = read_lines(process)
        assert [next(lines) for _ in range(3)] == ["ab\n", "c\u00e9\n", "\ufffd\n"]


def test_reports_of_a_trial_are_found_after_a_bar_on_the_same_line(tmp_path):
    code = f"""import os, sys, raysm
os.environ[{TRIAL!r}] = {str(tmp_path)!r}
for step in range(2):
    print(f"\\r{{step}}%| 0/2 [00:00", end="", file=sys.stderr, flush=True)
    raysm.report(loss=step)"""
    with start_program([sys.executable, "-c", code], tmp_path) as process:
        found = [report.parse(line) for line in read_lines(process)]
    assert [each.metrics for each in found if each is not None] == [{"loss": 0}, {"loss": 1}]


async def watched(one_ray, observe):
    """Watch the pending requests of the shared Ray; a job looks every five seconds."""
    port = int(ray.get_runtime_context().gcs_address.rpartition(":")[2])
    path = pending_socket(one_ray / "r", port)
    await asyncio.wait_for(watch_pending(path, observe, print, pause_s=0.2), 100)


def test_a_task_that_asks_for_more_than_an_instance_has_is_found_and_named(ray_here, one_ray):
    task = ray_here.remote(num_cpus=64)(lambda: None).remote()
    try:
        lines = observe(UnmetRequests(1e-3), None)
        with pytest.raises(InvalidRequest, match=r"num_cpus=64.* 1 x \(num_cpus=2\)"):
            asyncio.run(watched(one_ray, lines))
    finally:
        ray_here.cancel(task)


@pytest.mark.parametrize(("strategy", "cpus"), [("STRICT_SPREAD", 1), ("STRICT_PACK", 2)])
def test_a_group_that_its_strategy_makes_impossible_is_found_and_named(
    ray_here, one_ray, strategy, cpus
):
    group = ray_here.util.placement_group([{"CPU": cpus}] * 2, strategy=strategy)
    try:

        def lines(findings, now_s):
            # The request of another test on this Ray may still be among them.
            if any(
                f"2 bundles of num_cpus={cpus} ({strategy}" in request for request in findings.unmet
            ):
                raise InvalidRequest("found")
            return []

        with pytest.raises(InvalidRequest, match="found"):
            asyncio.run(watched(one_ray, lines))
    finally:
        ray_here.util.remove_placement_group(group)
