"""Workers of a training, as processes that torchrun might have started, forked from one that has imported torch.

Importing torch takes seconds on a busy machine, and the tests start dozens of workers: ``nursery()`` pays it once.
"""

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

DEADLINE_S = 60.0


@dataclasses.dataclass
class Workers:
    """A group of workers that runs."""

    nursery: "Nursery"
    pids: list[int]
    logs: list[Path]

    def text(self):
        return "".join(f"--- rank {rank}\n{log.read_text()}" for rank, log in enumerate(self.logs))

    def kill(self, ranks, number=signal.SIGKILL):
        for rank in ranks:
            os.kill(self.pids[rank], number)

    def wait_for(self, folder, *patterns):
        """Wait until for each pattern there is a file in the folder."""
        deadline_s = time.monotonic() + DEADLINE_S
        while not all(list(folder.glob(pattern)) for pattern in patterns):
            assert time.monotonic() < deadline_s, f"{folder}: not all of {patterns} came\n{self.text()}"
            time.sleep(0.005)

    def exits(self):
        """Wait for all; return each rank's exit code, minus the signal that ended it."""
        return [self.nursery.exit_of(pid, self.text) for pid in self.pids]


class Nursery:
    def __init__(self, process):
        self._process = process
        self._exits = {}

    def start(self, folder, arguments, *, workers, per_instance=None, arguments_of=lambda instance: []):
        """Start ``workers`` with torchrun's variables; each runs the nursery's module with the arguments."""
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
            given = [*map(str, arguments), *map(str, arguments_of(rank // per_instance))]
            self._process.stdin.write(json.dumps([variables, given, str(log)]) + "\n")
            self._process.stdin.flush()
            pids.append(self._read("pid"))
        return Workers(self, pids, logs)

    def run(self, *args, **kwargs):
        """Start workers and wait for them; return what they wrote. All have to end well."""
        workers = self.start(*args, **kwargs)
        exits = workers.exits()
        assert not any(exits), f"{exits}\n{workers.text()}"
        return workers.text()

    def exit_of(self, pid, text):
        deadline_s = time.monotonic() + DEADLINE_S
        while pid not in self._exits:
            assert time.monotonic() < deadline_s, f"process {pid} does not end\n{text()}"
            self._read(None, 1.0)
        return self._exits[pid]

    def _read(self, wanted, timeout_s=DEADLINE_S):
        """Return the value of the next answer with the key ``wanted``; note what ended meanwhile."""
        while select.select([self._process.stdout], [], [], timeout_s)[0]:
            answer = json.loads(self._process.stdout.readline())
            if "ended" in answer:
                self._exits[answer["ended"]] = answer["code"]
            if wanted in answer or wanted is None:
                return answer.get(wanted)
        assert wanted is None, "the nursery does not answer"
        return None


@contextlib.contextmanager
def nursery(module="tests.support.trainee"):
    """Yield a nursery whose workers run ``main`` of that module; at the end of the block it and they are gone."""
    command = [sys.executable, "-u", "-m", "tests.support.nursery", module]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    # Unbuffered: select must see what has not been read.
    with subprocess.Popen(command, bufsize=0, cwd=Path(__file__).parents[2], **pipes) as process:
        process.stdin, raw = open(process.stdin.fileno(), "w", closefd=False), process.stdin
        try:
            yield Nursery(process)
        finally:
            process.stdin.close()
            raw.close()
            process.wait(DEADLINE_S)


def main():
    run = importlib.import_module(sys.argv[1]).main
    living = set()
    while True:
        if select.select([sys.stdin], [], [], 0.01)[0]:
            line = sys.stdin.buffer.raw.readline()
            if not line:
                break
            pid = os.fork()
            if pid == 0:
                _become(run, *json.loads(line))
            living.add(pid)
            print(json.dumps({"pid": pid}), flush=True)
        for pid in list(living):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                living.remove(pid)
                print(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)
    for pid in living:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _become(run, variables, arguments, log):
    """Be a worker, in the child: its own output, its own variables, an exit like that of a script."""
    code = 1
    try:
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(written, 1)
        os.dup2(written, 2)
        os.environ.update({name: str(value) for name, value in variables.items()})
        run(arguments)
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
