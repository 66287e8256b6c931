"""Workers of a training, as processes that torchrun might have started, forked from one that has imported torch."""

import contextlib
import dataclasses
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tests.support.waiting import until

DEADLINE_S = 400.0
"""Against what hangs alone: on a machine with other work the longest program has taken 200 s."""

IMPORTED = ("tests.support.parallel_modes", "tests.support.standing_ranks", "tests.support.trainee")
"""The programs whose workers find what they import already there."""


@dataclasses.dataclass
class Workers:
    """A group of workers that runs."""

    server: "ForkServer"
    pids: list[int]
    logs: list[Path]

    def text(self):
        return "".join(f"--- rank {rank}\n{log.read_text()}" for rank, log in enumerate(self.logs))

    def kill(self, ranks, number=signal.SIGKILL):
        # The number of one that has ended may be another process's by now.
        for pid in self.server.living([self.pids[rank] for rank in ranks]):
            os.kill(pid, number)

    def wait_for(self, folder, *patterns):
        """Wait until for each pattern there is a file in the folder."""
        until(
            lambda: all(list(folder.glob(pattern)) for pattern in patterns),
            DEADLINE_S,
            self.text,
            0.005,
        )

    def exits(self):
        """Wait for all; return each rank's exit code, minus the signal that ended it."""
        return [self.server.exit_of(pid, self.text) for pid in self.pids]


@dataclasses.dataclass(frozen=True)
class Program:
    """A module whose ``main`` the workers run with their arguments."""

    server: "ForkServer"
    module: str

    def start(
        self, folder, arguments, *, workers, per_instance=None, arguments_of=lambda instance: []
    ):
        """Start ``workers`` with torchrun's variables, ``per_instance`` on each instance (default: all on one)."""
        folder.mkdir(parents=True, exist_ok=True)
        per_instance = per_instance or workers
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        logs = [folder / f"rank-{rank}.log" for rank in range(workers)]
        pids = []
        for rank, log in enumerate(logs):
            variables = {
                "RANK": rank,
                "LOCAL_RANK": rank % per_instance,
                "GROUP_RANK": rank // per_instance,
                "WORLD_SIZE": workers,
                "LOCAL_WORLD_SIZE": per_instance,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": 1,
            }
            own = [*map(str, arguments), *map(str, arguments_of(rank // per_instance))]
            pids.append(self.server.fork(self.module, variables, own, log))
        return Workers(self.server, pids, logs)

    def run(self, *args, **kwargs):
        """Start workers and wait for them; return what they wrote. All have to end well."""
        workers = self.start(*args, **kwargs)
        exits = workers.exits()
        assert not any(exits), f"{exits}\n{workers.text()}"
        return workers.text()


class ForkServer:
    """The parent of the workers, which knows how each ended."""

    def __init__(self, process):
        self._process = process
        self._exits = {}

    def program(self, module):
        """Return what starts workers that run ``main`` of the module of this name."""
        return Program(self, module)

    def fork(self, module, variables, arguments, log):
        """Start one worker that runs ``module``; return its pid."""
        self._process.stdin.write(json.dumps([module, variables, arguments, str(log)]) + "\n")
        self._process.stdin.flush()
        return self._read("pid")

    def living(self, pids):
        """Return those that have not ended, as far as is known."""
        while select.select([self._process.stdout], [], [], 0)[0]:
            self._read(None, 0)
        return [pid for pid in pids if pid not in self._exits]

    def exit_of(self, pid, text):
        deadline_s = time.monotonic() + DEADLINE_S
        while pid not in self._exits:
            assert time.monotonic() < deadline_s, f"process {pid} does not end\n{text()}"
            self._read(None, 1.0)
        return self._exits[pid]

    def _read(self, wanted, timeout_s=DEADLINE_S):
        """Return the value of the next answer with the key ``wanted``; note what ended meanwhile."""
        while select.select([self._process.stdout], [], [], timeout_s)[0]:
            line = self._process.stdout.readline()
            assert line, "the fork server has ended"
            answer = json.loads(line)
            if "ended" in answer:
                self._exits[answer["ended"]] = answer["code"]
            if wanted in answer or wanted is None:
                return answer.get(wanted)
        assert wanted is None, "the fork server does not answer"
        return None


@contextlib.contextmanager
def fork_server():
    """Yield a ``ForkServer``; at the end of the block it and its workers are gone."""
    command = [sys.executable, "-u", "-m", "tests.support.fork_server"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    # Unbuffered: select must see what has not been read.
    with subprocess.Popen(command, bufsize=0, cwd=Path(__file__).parents[2], **pipes) as process:
        process.stdin, raw = open(process.stdin.fileno(), "w", closefd=False), process.stdin
        try:
            yield ForkServer(process)
        finally:
            process.stdin.close()
            raw.close()
            process.wait(DEADLINE_S)


def main():
    for module in IMPORTED:
        importlib.import_module(module)
    living = set()
    while True:
        # A child that ends is seen soon; who waits for nothing else is woken by the next request.
        if select.select([sys.stdin], [], [], 0.01 if living else None)[0]:
            line = sys.stdin.buffer.raw.readline()
            if not line:
                break
            pid = os.fork()
            if pid == 0:
                _become(*json.loads(line))
            living.add(pid)
            print(json.dumps({"pid": pid}), flush=True)
        for pid in list(living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                living.remove(pid)
                print(
                    json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}),
                    flush=True,
                )
    for pid in living:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(module, variables, arguments, log):
    """Be a worker, in the child: its own output, its own variables, an exit like that of a script."""
    code = 1
    try:
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        os.environ.update({name: str(value) for name, value in variables.items()})
        importlib.import_module(module).main(arguments)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
