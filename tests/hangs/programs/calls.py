"""A session's call, a batch's part and a sweep's trial that hang; each runs in a job of its own.

``raysm`` calls these functions; to blame is the line with the case's name.
"""

import threading
import time

FOREVER_S = 3600


def session_call():
    print("begins session_call", flush=True)
    time.sleep(FOREVER_S)  # guilty: session_call


def session_call_in_a_task():
    import ray

    @ray.remote(num_cpus=1)
    def work():
        threading.Event().wait()  # guilty: session_call_in_a_task

    print("begins session_call_in_a_task", flush=True)
    ray.get(work.remote())


def batch_part(batch):
    print("begins batch_part", flush=True)
    if batch["number"][0] >= 2:
        time.sleep(FOREVER_S)  # guilty: batch_part
    return {"double": batch["number"] * 2}


def sweep_trial(rate):
    print("begins sweep_trial", flush=True)
    if rate == 2:
        threading.Event().wait()  # guilty: sweep_trial
    return rate


def trial_that_reads_a_dead_server(rate):
    import socket

    server = socket.create_server(("127.0.0.1", 0))
    connection = socket.create_connection(server.getsockname())
    print("begins trial_that_reads_a_dead_server", flush=True)
    if rate == 2:
        connection.recv(1)  # guilty: trial_that_reads_a_dead_server
    return rate
