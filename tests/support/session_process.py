"""A session's server in a process of its own, without Ray, whose cells run in its main thread as they do on a head."""

import contextlib
import subprocess
import sys
import threading
from pathlib import Path

from raysm.features.session.cluster.cells import Cells
from raysm.features.session.cluster.namespace import show_figures_inline
from raysm.features.session.cluster.output import route_output
from tests.support.sessions import Served

ROOT = Path(__file__).parents[2]
WAIT_S = 300.0


@contextlib.contextmanager
def serving(folder):
    """Yield the port of a server whose folder is ``folder``; it is ended afterwards."""
    command = [sys.executable, "-m", "tests.support.session_process", str(folder)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield int(process.stdout.readline())
    finally:
        process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def main(folder):
    """Serve."""
    show_figures_inline()
    cells = Cells("algo-1")
    server = Served(folder, cells=cells)

    def end():
        sys.stdin.read()
        server.close()

    def end_cells():
        server.is_over.wait()
        cells.end()

    server.thread.start()
    assert server.is_up.wait(WAIT_S)
    print(server.port, flush=True)
    for wait in (end, end_cells):
        threading.Thread(target=wait, daemon=True).start()
    with route_output(lambda: cells.output):
        cells.live()
    server.thread.join(WAIT_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
