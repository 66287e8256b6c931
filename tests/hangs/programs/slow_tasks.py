"""Programs on Ray that print nothing for half a minute, and work all the while, one case after the other."""

import asyncio
import hashlib
import os
import subprocess
import sys
import time

import numpy as np
import ray
import ray.data

LASTS_S = 20.0


@ray.remote(num_cpus=1)
def compute(seconds):
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        np.linalg.svd(np.random.rand(100, 100))
    return 1


@ray.remote(num_cpus=1)
class Worker:
    def compute(self, seconds):
        return ray.get(compute.options(num_cpus=0).remote(seconds))


def long_task():
    ray.get(compute.remote(LASTS_S))


def many_tasks():
    ray.get([compute.remote(0.5) for _ in range(int(LASTS_S * 2))])


def actor_that_waits_for_a_task():
    ray.get(Worker.remote().compute.remote(LASTS_S))


def driver_that_computes():
    until_s = time.monotonic() + LASTS_S
    while time.monotonic() < until_s:
        np.linalg.svd(np.random.rand(100, 100))


def large_objects():
    until_s = time.monotonic() + LASTS_S
    while time.monotonic() < until_s:
        # Half as much is 1 % of a fast core, and so no sign of life.
        ray.get(ray.put(np.ones(1 << 22)))
        time.sleep(0.2)


@ray.remote(num_cpus=1)
class Model:
    def __init__(self):
        ray.get(compute.options(num_cpus=0).remote(LASTS_S))

    def ready(self):
        return True


def slow_start_of_an_actor():
    ray.get(Model.remote().ready.remote())


def rows_of_a_data_set():
    def convert(row):
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2_000_000)
        return row

    ray.data.range(int(LASTS_S), override_num_blocks=4).map(convert).materialize()


def items_of_a_generator():
    @ray.remote(num_cpus=1)
    def items():
        until_s = time.monotonic() + LASTS_S
        while time.monotonic() < until_s:
            yield np.sort(np.random.rand(1 << 21))

    for item in items.options(num_returns="streaming").remote():
        ray.get(item)


def task_that_is_tried_again():
    @ray.remote(num_cpus=1, max_retries=4)
    def work(until_s):
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 4_000_000)
        if time.time() < until_s:
            os._exit(1)

    ray.get(work.remote(time.time() + LASTS_S / 2))


def new_workers():
    @ray.remote(num_cpus=1)
    def work():
        return 1

    until_s = time.monotonic() + LASTS_S
    for number in range(1000):
        if time.monotonic() < until_s:
            # Each environment needs a worker of its own.
            ray.get(work.options(runtime_env={"env_vars": {"NUMBER": str(number)}}).remote())


@ray.remote(num_cpus=0)
class Coroutines:
    async def work(self):
        until_s = time.monotonic() + LASTS_S
        while time.monotonic() < until_s:
            await asyncio.to_thread(hashlib.pbkdf2_hmac, "sha256", b"x", b"y", 200_000)


def actor_of_coroutines():
    ray.get(Coroutines.remote().work.remote())


def many_small_calls():
    actor = Worker.options(num_cpus=0).remote()
    until_s = time.monotonic() + LASTS_S
    while time.monotonic() < until_s:
        ray.get([actor.__ray_ready__.remote() for _ in range(50)])


def program_of_a_task():
    @ray.remote(num_cpus=1)
    def work():
        subprocess.run(
            ["timeout", str(LASTS_S), "gzip", "-c", "/dev/zero"], stdout=subprocess.DEVNULL
        )

    ray.get(work.remote())


def large_arguments():
    @ray.remote(num_cpus=1)
    def total(values):
        return float(values.sum())

    until_s = time.monotonic() + LASTS_S
    while time.monotonic() < until_s:
        values = ray.put(np.ones(1 << 20))
        ray.get([total.options(scheduling_strategy="SPREAD").remote(values) for _ in range(2)])
        time.sleep(0.2)


def polls_for_results():
    waiting = [compute.remote(LASTS_S / 3) for _ in range(4)]
    while waiting:
        _, waiting = ray.wait(waiting, timeout=1)
        time.sleep(1)


if __name__ == "__main__":
    ray.init()
    for name in sys.argv[1:]:
        print(f"begins {name}", flush=True)
        globals()[name]()
