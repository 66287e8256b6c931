"""The workers of one instance, seen by their agent."""

import socket
import subprocess
import sys
import time

from raysm.workloads.training.launch.agent import Agent, Exit


def test_a_free_port_can_be_listened_on():
    with socket.socket() as server:
        server.bind(("", Agent().free_port()))


def started(code):
    return subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)


def test_once_a_worker_fails_the_others_are_ended_and_known_by_it():
    agent = Agent()
    agent._running = {4: started("import sys; sys.exit(3)"), 5: started("import time; time.sleep(600)")}
    begun_s = time.time()
    first, second = agent._watch()
    assert (first.rank, first.status, first.was_ended) == (4, 3, False)
    assert (second.rank, second.was_ended) == (5, True)
    assert second.status < 0
    assert begun_s <= first.at_s <= second.at_s


def test_workers_that_end_well_are_left_alone():
    agent = Agent()
    agent._running = {0: started("pass"), 1: started("pass")}
    exits = sorted(agent._watch(), key=lambda one: one.rank)
    assert exits == [Exit(rank=one.rank, status=0, at_s=one.at_s) for one in exits]
    assert [one.rank for one in exits] == [0, 1]
