"""Programs on Ray that print nothing for a minute, and work all the while, by the name of the case."""

import sys
import time

import numpy as np
import ray

LASTS_S = 45.0


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
        ray.get(ray.put(np.ones(1 << 21)))
        time.sleep(0.2)


if __name__ == "__main__":
    ray.init()
    print("begins", flush=True)
    globals()[sys.argv[1]]()
