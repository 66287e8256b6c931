"""Programs on Ray that hang, by the name of the case; to blame is the line with the case's name."""

import os
import signal
import sys
import threading
import time

import ray
from ray.util.placement_group import placement_group
from ray.util.queue import Queue

FOREVER_S = 3600


@ray.remote(num_cpus=0)
class Peer:
    def __init__(self):
        self.other = None

    def meet(self, other):
        self.other = other

    def ask(self):
        return ray.get(self.other.ask.remote())  # guilty: actors_in_a_cycle actor_that_asks_itself

    def sleep(self):
        time.sleep(FOREVER_S)  # guilty: actor_that_sleeps wait_for_an_actor

    def wait(self):
        threading.Event().wait()  # guilty: actor_that_waits

    def stop(self):
        os.kill(os.getpid(), signal.SIGSTOP)


def actors_in_a_cycle():
    first, second = Peer.remote(), Peer.remote()
    ray.get([first.meet.remote(second), second.meet.remote(first)])
    ray.get(first.ask.remote())


def actor_that_asks_itself():
    peer = Peer.remote()
    ray.get(peer.meet.remote(peer))
    ray.get(peer.ask.remote())


def actor_that_sleeps():
    ray.get(Peer.remote().sleep.remote())


def actor_that_waits():
    ray.get(Peer.remote().wait.remote())


def wait_for_an_actor():
    peer = Peer.remote()
    ray.wait([peer.sleep.remote()])


def stopped_actor():
    peer = Peer.remote()
    ray.get(peer.stop.remote())


def sleeping_task():
    @ray.remote(num_cpus=1)
    def work():
        time.sleep(FOREVER_S)  # guilty: sleeping_task

    ray.get(work.remote())


def task_on_each_instance():
    @ray.remote(num_cpus=1, scheduling_strategy="SPREAD")
    def work(number):
        if number == 1:
            time.sleep(FOREVER_S)  # guilty: task_on_each_instance

    ray.get([work.remote(number) for number in range(2)])


def resources_that_never_come():
    @ray.remote(resources={"microscope": 1})
    def work():
        return 1

    ray.get(work.remote())  # guilty: resources_that_never_come


def resources_that_others_hold():
    @ray.remote(num_cpus=1)
    class Holder:
        def ready(self):
            return True

    cpus = int(ray.cluster_resources()["CPU"])
    holders = [Holder.remote() for _ in range(cpus)]
    ray.get([holder.ready.remote() for holder in holders])
    ray.get(Holder.remote().ready.remote())  # guilty: resources_that_others_hold


def placement_group_that_does_not_fit():
    group = placement_group([{"CPU": 1}] * 99)
    ray.get(group.ready())  # guilty: placement_group_that_does_not_fit


def full_queue():
    items = Queue(maxsize=1)
    for number in range(2):
        items.put(number)  # guilty: full_queue


def empty_queue():
    Queue().get()  # guilty: empty_queue


def driver_that_waits():
    threading.Event().wait()  # guilty: driver_that_waits


if __name__ == "__main__":
    ray.init()
    print("begins", flush=True)
    globals()[sys.argv[1]]()
