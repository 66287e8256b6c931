"""The workers of one instance, seen by their agent."""

import os
import signal
import subprocess
import sys
import time

from raysm.workloads.training.launch.torch_script import Agent


def started(code):
    return subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)


def test_once_a_worker_fails_the_others_are_ended_and_known_by_it():
    agent = Agent(own_end_s=0)
    agent._running = {4: started("import sys; sys.exit(3)"), 5: started("import time; time.sleep(600)")}
    begun_s = time.time()
    first, second = agent._watch()
    assert (first.rank, first.status, first.was_ended) == (4, 3, False)
    assert (second.rank, second.was_ended) == (5, True)
    assert second.status < 0
    assert begun_s <= first.at_s <= second.at_s


def test_one_that_fails_for_want_of_another_one_leaves_it_to_end_by_itself():
    agent = Agent(own_end_s=60)
    ours, theirs = os.pipe()
    first = subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.exit(1)"], pass_fds=[theirs], start_new_session=True
    )
    os.close(theirs)
    # Its pipe ends when the first one has.
    second = [sys.executable, "-S", "-c", "import sys; sys.stdin.read(); sys.exit(3)"]
    agent._running = {0: first, 1: subprocess.Popen(second, stdin=ours, start_new_session=True)}
    os.close(ours)
    exits = {one.rank: one for one in agent._watch()}
    assert {rank: (one.status, one.was_ended) for rank, one in exits.items()} == {0: (1, False), 1: (3, False)}


def test_one_that_is_killed_after_it_was_told_to_end_was_not_ended_unless_the_agent_killed_it():
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    for kills, was_ended in (
        (lambda agent, popen: popen.kill(), False),
        (lambda agent, popen: agent._kill([popen]), True),
    ):
        agent = Agent()
        popen = subprocess.Popen([sys.executable, "-S", "-c", deaf], start_new_session=True, stdout=subprocess.PIPE)
        popen.stdout.readline()  # from now on it hears no SIGTERM
        agent._running = {0: popen}
        agent._end(600)
        kills(agent, popen)
        (end,) = agent._watch()
        assert (end.status, end.was_ended) == (-signal.SIGKILL, was_ended)
        popen.stdout.close()
