"""Programs on Ray that hang, by the name of the case; to blame is the line with the case's name."""

import asyncio
import os
import signal
import threading
import time

import ray
import ray.data
from ray.util.placement_group import placement_group
from ray.util.queue import Queue
from series import run_in_children

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

    def wait_for_the_next_call(self):
        self.released = threading.Event()
        self.released.wait()  # guilty: actor_that_waits_for_its_next_call

    def release(self):
        self.released.set()

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


def actor_that_waits_for_its_next_call():
    peer = Peer.remote()
    waiting = peer.wait_for_the_next_call.remote()
    ray.get(peer.release.remote())
    ray.get(waiting)


@ray.remote(num_cpus=0)
class Unready:
    def __init__(self):
        threading.Event().wait()  # guilty: actor_that_never_is_made

    def ready(self):
        return True


def actor_that_never_is_made():
    ray.get(Unready.remote().ready.remote())


@ray.remote(num_cpus=0)
class Coroutines:
    async def wait(self):
        await asyncio.Event().wait()  # guilty: coroutine_of_an_actor


def coroutine_of_an_actor():
    ray.get(Coroutines.remote().wait.remote())


@ray.remote(num_cpus=0, max_concurrency=2)
class Locks:
    def __init__(self):
        self.locks = [threading.Lock(), threading.Lock()]

    def take(self, first, second):
        with self.locks[first]:
            time.sleep(0.5)
            with self.locks[second]:  # guilty: lock_order_in_an_actor
                return True


def lock_order_in_an_actor():
    actor = Locks.remote()
    ray.get([actor.take.remote(0, 1), actor.take.remote(1, 0)])


def generator_that_stands_still():
    @ray.remote(num_cpus=0)
    def items():
        yield 1
        threading.Event().wait()  # guilty: generator_that_stands_still

    for item in items.options(num_returns="streaming").remote():
        ray.get(item)


def actor_whose_task_gets_no_core():
    @ray.remote(num_cpus=1)
    def work():
        return 1

    @ray.remote(num_cpus=1)
    class Holder:
        def ask(self):
            return ray.get(work.remote())  # guilty: actor_whose_task_gets_no_core

    holders = [Holder.remote() for _ in range(int(ray.cluster_resources()["CPU"]))]
    ray.get([holder.ask.remote() for holder in holders])


def name_that_no_actor_has():
    while True:
        try:
            ray.get_actor("server")
            break
        except ValueError:
            time.sleep(1)  # guilty: name_that_no_actor_has


def one_slow_item_of_a_data_set():
    def convert(row):
        if row["id"] == 3:
            time.sleep(FOREVER_S)  # guilty: one_slow_item_of_a_data_set
        return row

    ray.data.range(4, override_num_blocks=4).map(convert).materialize()


def run(name):
    ray.init()
    print(f"begins {name}", flush=True)
    globals()[name]()


if __name__ == "__main__":
    run_in_children(run)
