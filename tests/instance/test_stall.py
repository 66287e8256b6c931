"""When a job has stalled: no line and no work, by snapshots under a clock that tests move."""

from dataclasses import replace

import pytest

from raysm.core.client.logs.rendering import sentence
from raysm.core.protocol.events import State
from raysm.core.protocol.stacks import Frame, ProcessStack, Thread
from raysm.instance.activity import Activity
from raysm.instance.lifecycle import Recovered, Stalled
from raysm.instance.stacks import Snapshot
from raysm.instance.stall import MAX_LINES, StallWatch
from tests.support.pages import outputs

STALL_S = 300.0
C10D = "/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
ALL_REDUCE = Frame(file=C10D, line=3000, function="all_reduce")
QUEUE = Frame(file="/lib/python3.11/queue.py", line=171, function="get")


def own(line, source=""):
    return Frame(file="/app/train.py", line=line, function="f", is_own=True, source=source)


def process(number, *frames, role=None, **facts):
    threads = (Thread(frames=frames, is_main=True),) if frames else ()
    role = role or f"rank {number}"
    return ProcessStack(host="algo-1", pid=100 + number, role=role, threads=threads, **facts)


WAITING = process(0, ALL_REDUCE, own(9))
SLEEPING = process(1, own(8, "time.sleep(3600)"))


class World:
    """A job whose processes stand still, but for what a test lets them do in each second."""

    def __init__(self, *processes, **options):
        self.now_s = 1000.0
        self.processes = list(processes)
        self.activity = Activity()
        self.watch = StallWatch(STALL_S, self.now_s, **options)
        self.looks = 0

    def run(
        self,
        seconds,
        *,
        cpu=(),
        main_cpu=(),
        io=(),
        faults=(),
        network=0.0,
        ray_cpu=0.0,
        idle_cpu=0.0,
        lines_every_s=None,
    ):
        """Let time pass; return the events. ``cpu`` to ``faults`` are rates of the processes in order."""
        events = []
        until_s = self.now_s + seconds
        line_s = self.now_s
        while self.now_s < until_s:
            self.now_s += 1.0
            self.processes = [
                replace(
                    each,
                    cpu_s=each.cpu_s + cores,
                    main_cpu_s=each.main_cpu_s + main,
                    io_bytes=each.io_bytes + int(rate),
                    page_faults=each.page_faults + pages,
                )
                for each, cores, main, rate, pages in zip(
                    self.processes,
                    [*cpu, *[0.01] * (len(self.processes) - len(cpu))],
                    [*main_cpu, *[0.004] * (len(self.processes) - len(main_cpu))],
                    [*io, *[500] * (len(self.processes) - len(io))],
                    [*faults, *[20] * (len(self.processes) - len(faults))],
                    strict=True,
                )
            ]
            self.activity = replace(
                self.activity,
                network_bytes=self.activity.network_bytes + int(network),
                ray_cpu_s=self.activity.ray_cpu_s + ray_cpu,
                idle_cpu_s=self.activity.idle_cpu_s + idle_cpu,
            )
            if lines_every_s and self.now_s - line_s >= lines_every_s:
                line_s = self.now_s
                events.append(self.watch.take_line(line_s))
            if self.now_s >= self.watch.next_look_s:
                self.looks += 1
                snapshot = Snapshot(
                    host="algo-1", processes=tuple(self.processes), activity=self.activity
                )
                events.append(self.watch.take_look([snapshot], self.now_s))
        return [event for event in events if event is not None]


def stalls(events):
    return [event for event in events if isinstance(event, Stalled)]


def test_ranks_of_which_one_left_the_loop_stall_and_are_named():
    [stall] = World(WAITING, SLEEPING).run(2 * STALL_S)
    shown = outputs("guides/hangs-diverges-costs.md")[0]
    state = State(name="stalled", host="algo-1", detail=stall.sentence)
    assert sentence(state) == shown.strip()
    assert "unchanged" in stall.stacks


def test_stall_is_found_after_its_time_and_not_before():
    world = World(WAITING, SLEEPING)
    assert not world.run(STALL_S - 2)
    assert stalls(world.run(5))


def test_job_that_prints_is_not_looked_at():
    world = World(WAITING, SLEEPING)
    assert not world.run(4 * STALL_S, lines_every_s=60)
    assert world.looks == 0


@pytest.mark.parametrize(
    "work",
    [
        {"cpu": [0.01, 0.9]},
        {"main_cpu": [0.004, 0.02]},
        {"io": [500, 1_000_000]},
        {"faults": [20, 1000]},
        {"network": 1_000_000},
    ],
)
def test_work_of_one_process_or_of_the_network_is_life(work):
    assert not World(WAITING, SLEEPING).run(4 * STALL_S, **work)


def test_what_idle_processes_and_idle_ray_do_is_no_life():
    world = World(WAITING, SLEEPING)
    world.activity = Activity(network_bytes=10**9, ray_cpu_s=1e4, idle_workers=8, idle_cpu_s=1e4)
    idle = {"cpu": [0.01, 0.01], "io": [8300, 700], "network": 30_000}
    assert stalls(world.run(2 * STALL_S, **idle, ray_cpu=0.02, idle_cpu=0.08))


def test_packages_that_ray_installs_are_life():
    assert not World(WAITING, SLEEPING).run(4 * STALL_S, ray_cpu=0.5)


def test_programs_that_outlive_their_parents_are_life():
    world = World(WAITING, SLEEPING)
    for seconds in range(1, 20):
        world.activity = replace(world.activity, orphan_cpu_s=float(seconds * STALL_S / 8))
        assert not world.run(STALL_S / 4)
    assert stalls(world.run(2 * STALL_S))


def test_workers_that_still_start_are_life():
    world = World(WAITING, SLEEPING)
    world.activity = Activity(idle_workers=4)
    assert not world.run(4 * STALL_S, idle_cpu=0.9)


def test_worker_that_gets_no_core_while_it_starts_is_life():
    world = World(WAITING, SLEEPING)
    world.activity = Activity(idle_workers=1, is_idle_starved=True)
    assert not world.run(4 * STALL_S)


def test_job_in_which_only_library_code_runs_stalls_too():
    server = process(0, Frame(file="/lib/selectors.py", line=9, function="select"), role="driver")
    [stall] = World(server).run(2 * STALL_S)
    assert "driver" in stall.sentence


def test_stacks_of_a_large_job_are_cut():
    ranks = [process(number, *[own(line) for line in range(number, 30)]) for number in range(20)]
    [stall] = World(*ranks).run(2 * STALL_S)
    lines = stall.stacks.splitlines()
    assert len(lines) == MAX_LINES + 1
    assert "raysm stacks" in lines[-1]


def test_kernels_that_use_the_memory_of_a_gpu_are_life():
    world = World(process(0, own(41)))
    world.activity = Activity(gpu_percent=80, gpu_memory_percent=30)
    assert not world.run(4 * STALL_S)


def test_process_that_spins_in_a_collective_does_not_work():
    assert stalls(World(WAITING, SLEEPING).run(2 * STALL_S, cpu=[1.0, 0.01]))


def test_main_thread_that_works_a_little_outside_the_users_code_does_not_work():
    server = process(2, QUEUE, role="worker")
    assert stalls(World(WAITING, SLEEPING, server).run(2 * STALL_S, main_cpu=[0.004, 0.004, 0.02]))


def test_process_that_spins_while_a_gpu_runs_kernels_without_memory_does_not_work():
    world = World(process(0, own(41, "loss.item()")), SLEEPING)
    world.activity = Activity(gpu_percent=100)
    assert stalls(world.run(2 * STALL_S, cpu=[1.0, 0.01]))


def test_process_that_computes_while_a_gpu_runs_works_if_its_stack_moves():
    world = World(replace(process(0, own(41)), is_still=False))
    world.activity = Activity(gpu_percent=100)
    assert not world.run(4 * STALL_S, cpu=[1.0])


def test_process_whose_other_threads_work_while_it_waits_for_a_queue_works():
    assert not World(process(0, QUEUE, own(41))).run(4 * STALL_S, cpu=[0.5])


def test_process_that_gets_no_core_because_of_others_works():
    world = World(WAITING, replace(process(1, own(17)), is_starved=True))
    assert not world.run(4 * STALL_S)


def test_endless_loop_is_work():
    assert not World(WAITING, process(1, own(17))).run(4 * STALL_S, cpu=[0.01, 1.0])


def test_new_processes_are_work():
    world = World(SLEEPING)
    for number in range(2, 12):
        assert not world.run(STALL_S / 2)
        world.processes = [process(number, own(17))]


def test_work_before_a_line_does_not_delay_a_stall_after_it():
    world = World(WAITING, SLEEPING)
    world.run(STALL_S / 2, cpu=[1.0, 1.0])
    world.watch.take_line(world.now_s)
    assert stalls(world.run(STALL_S + 1))


def test_stall_is_said_once_and_its_end_with_its_length():
    world = World(WAITING, SLEEPING)
    assert len(stalls(world.run(5 * STALL_S))) == 1
    [recovered] = world.run(STALL_S, cpu=[0.01, 1.0])
    assert isinstance(recovered, Recovered)
    assert recovered.after_s == pytest.approx(5 * STALL_S, abs=STALL_S / 2)
    assert len(stalls(world.run(2 * STALL_S))) == 1


def test_line_ends_a_stall():
    world = World(WAITING, SLEEPING)
    world.run(2 * STALL_S)
    assert isinstance(world.watch.take_line(world.now_s), Recovered)


def test_session_without_a_call_waits_for_one():
    server = process(0, Frame(file="/lib/selectors.py", line=9, function="select"), role="driver")
    assert not World(server, takes_calls=True).run(4 * STALL_S)
    assert stalls(World(server, SLEEPING, takes_calls=True).run(2 * STALL_S))


def test_thread_that_a_cell_has_left_is_no_call():
    main = Thread(
        frames=(Frame(file="/lib/selectors.py", line=9, function="select"),), is_main=True
    )
    left = Thread(frames=(own(8, "time.sleep(3600)"),))
    server = replace(process(0, role="driver"), threads=(main, left))
    assert not World(server, takes_calls=True).run(4 * STALL_S)


def test_instance_that_does_not_answer_is_not_called_stalled():
    silent = ProcessStack(host="algo-2", pid=0, role="instance", problem="silent for 5 s")
    assert not World(SLEEPING, silent).run(4 * STALL_S)


def test_stopped_process_is_named():
    stopped = process(1, problem="stopped by a signal (SIGSTOP)")
    [stall] = World(WAITING, stopped).run(2 * STALL_S)
    assert "rank 1 is stopped by a signal (SIGSTOP)" in stall.sentence


def test_processes_of_raysm_and_ray_are_not_named_where_user_code_runs():
    controller = process(5, Frame(file="/ray/worker.py", line=9, function="loop"), role="Control")
    [stall] = World(process(0, own(41), role="driver"), controller).run(2 * STALL_S)
    assert "Control" not in stall.sentence
    assert "Control" in stall.stacks


def test_what_a_longer_look_at_the_stall_takes_is_no_sign_of_life():
    world = World(WAITING, SLEEPING)
    assert stalls(world.run(2 * STALL_S))
    # Torch writes its records.
    world.processes = [
        replace(each, cpu_s=each.cpu_s + 10, io_bytes=each.io_bytes + 10**7)
        for each in world.processes
    ]
    snapshot = Snapshot(host="algo-1", processes=tuple(world.processes), activity=world.activity)
    world.watch.describe([snapshot], world.now_s)
    assert not world.run(2 * STALL_S)
