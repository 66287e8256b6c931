"""A script in a job behaves as under ``python script.py``: each case runs both ways, and the outcomes are compared."""

import os
import re
import subprocess
import sys

import pytest

from raysm.workloads import script_main

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
        "import threading, time\ndef late():\n    time.sleep(0.3)\n    print('late', name)\n"
        "threading.Thread(target=late).start()\nname = 'main'\nprint('first')"
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
        timeout=60,
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
                subprocess.run(command, stdout=full, stderr=subprocess.DEVNULL, env=BUFFERED, check=False).returncode
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
    plain = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert plain.returncode == -6, "the case itself"
    ended = subprocess.run(script_main.command(str(script), []), capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended well\n", "")
