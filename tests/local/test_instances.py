"""What every kind of instance promises, seen from outside."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from raysm.core.protocol.packages import default_index
from raysm.errors import RaysmError
from raysm.local.instances import InstanceSpec, Link, open_site
from raysm.local.instances.share import Share
from raysm.local.scenario import Container, Network, Scenario
from tests.support.leftovers import assert_nothing_left
from tests.support.processes import is_running
from tests.support.waiting import until

BOTH = ["process", pytest.param("namespace", marks=pytest.mark.namespace)]
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
SOON_S = 120.0


@pytest.fixture(params=BOTH)
def kind(request):
    return request.param


class Job:
    """A site, and what its instances write."""

    def __init__(self, site, root):
        self.site, self.root = site, root
        self._logs = {}

    def spec(self, host, command, **fields):
        private = self.root / host
        base = private / "ml"
        base.mkdir(parents=True, exist_ok=True)
        self._logs[host] = (private / "log").open("wb")
        return InstanceSpec(
            host=host,
            base=base,
            private=private,
            command=tuple(command),
            variables={"PATH": PATH, **fields.pop("variables", {})},
            log_fd=self._logs[host].fileno(),
            **{"scenario": WHOLE} | fields,
        )

    def start(self, *commands, **fields):
        return self.site.start(
            [self.spec(f"algo-{i + 1}", command, **fields) for i, command in enumerate(commands)]
        )

    def base(self, host="algo-1"):
        return self.root / host / "ml"

    def log(self, host="algo-1"):
        return (self.root / host / "log").read_text()

    def close(self):
        self.site.close()
        for file in self._logs.values():
            file.close()


@contextlib.contextmanager
def opened(kind, root):
    job = Job(open_site(kind), root)
    try:
        yield job
    finally:
        job.close()


@pytest.fixture
def job(kind, tmp_path):
    with opened(kind, tmp_path / "job") as job:
        yield job
    assert_nothing_left(tmp_path / "job")


def sh(code):
    return ["sh", "-c", code]


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]


def wait_for_file(path):
    return until(lambda: path.exists() and path.read_text(), SOON_S)


WHOLE = Scenario(container=Container(root_mb=0))
"""These tests speak with their instances by files right below /opt/ml."""

BASE = 'BASE=${SAGEMAKER_BASE_DIR:-/opt/ml}; cd "$BASE"; '
PYTHON_BASE = """
import os, pathlib, signal, subprocess, sys, time
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
def put(name, text):
    (base / ".part").write_text(str(text)); (base / ".part").rename(base / name)
"""


def test_an_instance_is_given_its_variables_its_cpus_and_nothing_of_the_callers(job, monkeypatch):
    monkeypatch.setenv("A_SECRET_OF_THE_CALLER", "x")
    cpu = sorted(os.sched_getaffinity(0))[-1]
    instances = job.start(
        sh("exit 3"),
        sh("seq 1 20000; echo error >&2; printf 'the end'"),
        ["env"],
        # The fourth descriptor is that of ls itself, which reads the folder.
        sh("grep -E 'Sig(Blk|Ign)' /proc/self/status; echo $(ls /proc/self/fd)"),
        [
            sys.executable,
            "-c",
            "import os; print(os.sched_getaffinity(0), os.environ['RAYSM_CPUS'])",
        ],
        variables={"GIVEN": "a b=c"},
        share=Share(cpus=1, affinity=(cpu,)),
    )
    assert [instance.wait(SOON_S) for instance in instances] == [3, 0, 0, 0, 0]
    assert job.log("algo-2").split("\n") == [str(i) for i in range(1, 20001)] + ["error", "the end"]
    assert "GIVEN=a b=c\n" in job.log("algo-3")
    assert "A_SECRET_OF_THE_CALLER" not in job.log("algo-3")
    *masks, descriptors = job.log("algo-4").splitlines()
    # The standard signals: glibc's posix_spawn, by which Python 3.13 starts processes, ignores its
    # own signal 32.
    assert {int(line.split()[1], 16) & 0x7FFFFFFF for line in masks} == {0}
    assert descriptors == "0 1 2 3"
    assert job.log("algo-5") == f"{{{cpu}}} 1\n"


def test_a_command_that_is_not_there_is_said_and_nothing_is_left(kind, tmp_path):
    with (
        opened(kind, tmp_path / "job") as job,
        pytest.raises(RaysmError, match="algo-2: exec no-such-command"),
    ):
        job.start(["sleep", "1000"], ["no-such-command"])
    assert_nothing_left(tmp_path / "job")


def test_when_the_main_process_is_killed_its_children_go_too_even_daemons(job):
    code = (
        BASE
        + "sleep 1000 & setsid sh -c 'trap \"\" TERM; echo yes >ready; sleep 1000' & sleep 1000"
    )
    (instance,) = job.start(sh(code))
    wait_for_file(job.base() / "ready")
    # The last of them may start after the file is there.
    until(lambda: len(_below(instance)) >= 3, SOON_S)
    below = _below(instance)
    os.kill(instance.pid, signal.SIGKILL)
    instance.wait(SOON_S)
    assert [pid for pid in below if is_running(pid)] == []


def _below(instance):
    """The processes in an instance beside its main process, as this machine numbers them."""
    keeper = instance.keeper.pid
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
    found, known = [], {keeper}
    while more := {pid for pid, parent in parents.items() if parent in known} - known:
        known |= more
        found += more
    # An init in front of the main process lives and dies with it.
    return sorted(set(found) - {instance.pid, parents[instance.pid]})


def test_sigterm_reaches_the_main_process_alone(job):
    child = "trap 'echo child >>heard' TERM; trap 'exit 0' USR1; echo yes >ready; while :; do sleep 0.05; done"
    (instance,) = job.start(
        # The trap first: from when the child is ready, the main process has to be ready too.
        sh(
            f"{BASE} trap 'echo main >>heard; kill -USR1 $!; wait $!; exit 7' TERM; sh -c \"{child}\" & wait"
        )
    )
    wait_for_file(job.base() / "ready")
    instance.signal(signal.SIGTERM)
    assert instance.wait(SOON_S) == 7
    assert (job.base() / "heard").read_text() == "main\n"


def test_when_the_parent_is_killed_nothing_is_left(kind, tmp_path):
    root = tmp_path / "job"
    code = f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from pathlib import Path
        from tests.local.test_instances import Job, sh
        from raysm.local.instances import open_site
        job = Job(open_site({kind!r}), Path({str(root)!r}))
        started = job.start(*[sh("setsid sleep 1000 & sleep 1000")] * 2)
        print(*[instance.pid for instance in started], flush=True)
        os.kill(os.getpid(), 9)
    """
    parent = subprocess.Popen([*python(code)], stdout=subprocess.PIPE, text=True)
    pids = parent.communicate(timeout=SOON_S)[0].split()
    assert parent.returncode == -signal.SIGKILL
    assert len(pids) == 2
    assert_nothing_left(root, owner=parent.pid)
    assert not any(is_running(pid) for pid in pids)


def test_when_its_keeper_is_killed_the_instance_ends_and_nothing_is_left(job):
    (instance,) = job.start(sh(BASE + "setsid sleep 1000 & echo yes >ready; sleep 1000"))
    wait_for_file(job.base() / "ready")
    below = _below(instance)
    os.kill(instance.keeper.pid, signal.SIGKILL)
    assert instance.wait(SOON_S) == 128 + signal.SIGKILL
    until(lambda: not any(is_running(pid) for pid in [*below, instance.pid]), SOON_S)


LISTEN = (
    PYTHON_BASE
    + """
import socket
listener = socket.socket()
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
put("ready", listener.getsockname()[1])
while True:
    listener.accept()[0].sendall(b"hello")
"""
)

namespace_only = pytest.mark.parametrize(
    "kind", [pytest.param("namespace", marks=pytest.mark.namespace)], indirect=True
)


@namespace_only
def test_instances_reach_each_other_by_name(job):
    call = (
        PYTHON_BASE
        + """
import socket
while True:
    try:
        put("heard", socket.create_connection(("algo-1", 4000), timeout=5).recv(5).decode())
        break
    except ConnectionRefusedError:
        time.sleep(0.02)
"""
    )
    instances = job.start(
        [sys.executable, "-c", LISTEN, "algo-1", "4000"], [sys.executable, "-c", call]
    )
    assert instances[1].wait(SOON_S) == 0
    assert (job.base("algo-2") / "heard").read_text() == "hello"


def with_folders(job, *names):
    for name in names:
        (job.base() / name).mkdir(parents=True)


@namespace_only
def test_beside_the_documented_folders_of_opt_ml_there_is_little_room(job):
    with_folders(job, "model", "output")
    code = """
        fill() { head -c 9000000 /dev/zero > $1/f 2>/dev/null && echo $1 fits || echo $1 is full; }
        mkdir -p /opt/ml/scratch; fill /opt/ml/scratch; fill /opt/ml/model; fill /tmp
    """
    (instance,) = job.start(
        sh(textwrap.dedent(code)), scenario=Scenario(container=Container(root_mb=4))
    )
    instance.wait(SOON_S)
    assert job.log().splitlines() == ["/opt/ml/scratch is full", "/opt/ml/model fits", "/tmp fits"]
    assert (job.base() / "model" / "f").stat().st_size == 9_000_000


CAN_WRITE = """
for folder in / /usr /opt /opt/ml /opt/ml/model /opt/ml/output /tmp /dev/shm "$HOME"; do
    touch "$folder/raysm-test" 2>/dev/null && echo "$folder" && rm "$folder/raysm-test"
done
id -u
python -c 'import raysm'
"""


@namespace_only
def test_another_user_than_root_can_write_only_the_documented_folders(job):
    with_folders(job, "model", "output")
    variables = {"PATH": f"{Path(sys.executable).parent}:{PATH}"}
    (instance,) = job.start(
        sh(CAN_WRITE), scenario=Scenario(container=Container(user=4242)), variables=variables
    )
    assert instance.wait(SOON_S) == 0, job.log()
    assert job.log().splitlines() == ["/opt/ml/model", "/opt/ml/output", "/tmp", "/dev/shm", "4242"]
    assert not Path("/raysm-test").exists()


@namespace_only
def test_without_an_answer_from_the_internet_connections_hang_and_peers_answer(job):
    index = default_index().hosts[0]
    code = f"""
        import socket
        peer = socket.create_server(("algo-1", 4001))
        socket.create_connection(("algo-1", 4001), 5).close()
        try:
            socket.create_connection(("{index}", 443), 3.5)
        except OSError as error:
            print(type(error).__name__)
    """
    silent = Scenario(container=Container(root_mb=0), network=Network(silent_internet=True))
    (instance,) = job.start(python(code), scenario=silent)
    assert instance.wait(SOON_S) == 0, job.log()
    # Without a neighbour it would be "no route to host", after three seconds.
    assert job.log().strip() == "TimeoutError"


OWN_FOLDERS = """
import sys
from pathlib import Path
from raysm.local.instances.share import Share
from tests.local.test_instances import SOON_S, opened, sh
with opened("namespace", Path(sys.argv[1])) as job:
    paths = ["/tmp/raysm-test-own", "/dev/shm/raysm-test-own", "/opt/ml/own", "/opt/raysm-test-own"]
    before = {path: (path.exists(), path.stat().st_mtime_ns) for path in map(Path, ("/opt", *sys.argv[2:]))}
    (instance,) = job.start(
        sh(f"touch {' '.join(paths)}; df -B1 --output=size /dev/shm"), share=Share(memory_bytes=200 * 2**20)
    )
    assert instance.wait(SOON_S) == 0, job.log()
    assert [path for path in paths if Path(path).exists()] == []
    assert {path: (path.exists(), path.stat().st_mtime_ns) for path in before} == before
    assert (job.base() / "own").exists()
    assert job.log().split()[-1] == str(100 * 2**20)
"""


@pytest.mark.namespace
def test_a_namespace_instances_tmp_shm_and_opt_ml_are_its_own(tmp_path):
    if Path(sys.prefix).is_relative_to("/opt") or Path(sys.base_prefix).is_relative_to("/opt"):
        pytest.skip("the Python that runs the tests lies below /opt")
    # What /opt holds is this test's: in mounts of its own, over whatever the machine has there.
    (tmp_path / "opt" / "ml").mkdir(parents=True)
    command = [sys.executable, "-c", OWN_FOLDERS, str(tmp_path / "job"), "/opt/ml"]
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-c",
            'mount --bind "$0" /opt && exec "$@"',
            str(tmp_path / "opt"),
            *command,
        ],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@namespace_only
def test_a_namespace_instance_sees_its_own_processes_alone_and_its_links_are_read_only(
    job, tmp_path
):
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("given")
    link = Link(source=data, target=job.base() / "input" / "data" / "all")
    code = "cd /opt/ml/input/data/all; echo y >x; echo y >new; ls -d /proc/[0-9]* | wc -l; ls -d /proc/1"
    (instance,) = job.start(sh(code), links=(link,))
    instance.wait(SOON_S)
    assert job.log().count("Read-only file system") == 2
    assert [(path.name, path.read_text()) for path in data.iterdir()] == [("x", "given")]
    *_, count, first = job.log().splitlines()
    assert first == "/proc/1"
    assert int(count) < 6


@pytest.mark.namespace
def test_a_file_system_is_read_only_in_an_instance_of_kind_process(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "x").write_text("given")
    with opened("process", tmp_path / "job") as job:
        folder = job.base() / "input" / "data" / "all"
        link = Link(source=data, target=folder, is_mounted=True)
        (instance,) = job.start(sh(f"cd {folder}; cat x; echo y >x; echo y >new"), links=(link,))
        instance.wait(SOON_S)
        log = job.log()
    assert log.startswith("given")
    assert log.count("Read-only file system") == 2
    assert [path.name for path in data.iterdir()] == ["x"]


def test_process_instances_are_told_distinct_free_ports_and_a_short_folder_for_ray(tmp_path):
    with opened("process", tmp_path / "job") as job:
        code = (
            "import os; print(os.environ['RAYSM_PORTS']); print(os.environ['RAYSM_RAY_TEMP_DIR'])"
        )
        instances = job.start([sys.executable, "-c", code], [sys.executable, "-c", code])
        for instance in instances:
            instance.wait(SOON_S)
        first, second = (job.log(host).split("\n") for host in ("algo-1", "algo-2"))
    ports = json.loads(first[0])
    assert json.loads(second[0]) == ports
    assert len({ports[name] for name in ("control", "gcs", "dashboard")}) == 3
    assert first[1] != second[1]
    # A Ray session adds 64 characters to it, of 107 that the path of a socket has.
    assert max(len(first[1]), len(second[1])) <= 43


def test_a_port_of_the_loopback_is_reached_and_no_others_is(job):
    (instance,) = job.start([sys.executable, "-c", LISTEN, "127.0.0.1", "0"])
    port = int(wait_for_file(job.base() / "ready"))
    with instance.connect(port) as connection:
        connection.settimeout(SOON_S)
        assert connection.recv(5) == b"hello"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="refused"):
            instance.connect(free.getsockname()[1])


def test_a_command_beside_the_main_process_is_where_that_is(job):
    command = sh(f"{BASE} echo here > told; echo $HOME; read line; echo $?; exit 7")
    (instance,) = job.start(
        sh("trap 'exit 0' TERM; while :; do sleep 0.05; done"), variables={"MINE": "1"}
    )
    reader, writer = os.pipe()
    running = instance.enter(command, stdin=os.devnull, stdout=f"/proc/{os.getpid()}/fd/{writer}")
    assert running.exited.result(SOON_S) == 7
    os.close(writer)
    with os.fdopen(reader) as output:
        home, read = output.read().split()
    assert (read, (job.base() / "told").read_text()) == ("1", "here\n")
    assert home in ("/", str(job.root / "algo-1" / "home"))
    running.kill()  # it has ended


def test_a_command_beside_the_main_process_can_be_killed_and_ends_with_the_instance(job):
    (instance,) = job.start(sh("sleep 1000"))
    first, second = (
        instance.enter(sh("sleep 1000"), stdin=os.devnull, stdout=os.devnull) for _ in range(2)
    )
    first.kill()
    assert first.exited.result(SOON_S) == 128 + signal.SIGKILL
    assert not second.exited.done()
    instance.kill()
    assert second.exited.result(SOON_S) == 128 + signal.SIGKILL
    late = instance.enter(sh("true"), stdin=os.devnull, stdout=os.devnull)
    assert late.exited.result(SOON_S) == 128 + signal.SIGKILL
