"""Trainings that hang, by the name of the case; rank 1 of two is to blame, at the line with the case's name."""

import asyncio
import concurrent.futures
import fcntl
import http.server
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import torch
import torch.distributed as dist

ONES = torch.ones(4)
FOREVER_S = 3600
RANK = int(os.environ["RANK"])


def reduce():
    dist.all_reduce(ONES.clone())


# -- collectives that do not fit


def left_loop():
    for step in range(3):
        if RANK == 1 and step == 2:
            break
        reduce()
    if RANK == 1:
        time.sleep(FOREVER_S)  # guilty: left_loop


def uneven_batches():
    for _ in range(5 - RANK):
        reduce()
    if RANK == 1:
        dist.barrier()  # guilty: uneven_batches


def barrier_in_a_branch():
    if RANK == 1:
        dist.barrier()  # guilty: barrier_in_a_branch
    reduce()


def other_collective():
    if RANK == 1:
        dist.all_gather([ONES.clone() for _ in range(2)], ONES)  # guilty: other_collective
    reduce()


def object_collective():
    if RANK == 1:
        dist.all_gather_object([None, None], "x")  # guilty: object_collective
    reduce()


def receive_without_send():
    if RANK == 1:
        dist.recv(ONES.clone(), src=0)  # guilty: receive_without_send
    reduce()


def receive_cycle():
    dist.recv(ONES.clone(), src=1 - RANK)  # guilty: receive_cycle
    dist.send(ONES, dst=1 - RANK)


def broadcast_from_the_other():
    dist.broadcast(ONES.clone(), src=1 - RANK)  # guilty: broadcast_from_the_other


def group_of_one_rank():
    if RANK == 1:
        dist.new_group([0, 1])  # guilty: group_of_one_rank
    reduce()


def store_key_that_nobody_sets():
    if RANK == 1:
        dist.distributed_c10d._get_default_store().wait(["x"])  # guilty: store_key_that_nobody_sets
    reduce()


def gradients_of_one_rank():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for step in range(3):
        loss = model(ONES).sum()
        if RANK == 1 and step == 2:
            time.sleep(FOREVER_S)  # guilty: gradients_of_one_rank
        loss.backward()


def file_of_the_other_rank():
    if RANK == 1:
        while not os.path.exists("/nowhere/step-7.pt"):
            time.sleep(1)  # guilty: file_of_the_other_rank
    reduce()


# -- locks, queues, threads


def lock_order():
    first, second = threading.Lock(), threading.Lock()

    def other():
        with second:
            time.sleep(0.5)
            with first:
                pass

    if RANK == 1:
        with first:
            threading.Thread(target=other, daemon=True).start()
            time.sleep(0.2)
            with second:  # guilty: lock_order
                pass
    reduce()


def lock_taken_twice():
    lock = threading.Lock()
    if RANK == 1:
        lock.acquire()
        lock.acquire()  # guilty: lock_taken_twice
    reduce()


def full_queue():
    batches = queue.Queue(maxsize=2)
    for _ in range(3 if RANK == 1 else 1):
        batches.put(ONES)  # guilty: full_queue
    reduce()


def empty_queue():
    batches = queue.Queue()
    threading.Thread(target=int, daemon=True).start()  # a loader that died
    if RANK == 1:
        batches.get()  # guilty: empty_queue
    reduce()


def full_process_queue():
    batches = multiprocessing.get_context("fork").Queue(maxsize=1)
    for _ in range(2 if RANK == 1 else 1):
        batches.put(ONES.tolist())  # guilty: full_process_queue
    reduce()


def event_that_nobody_sets():
    if RANK == 1:
        threading.Event().wait()  # guilty: event_that_nobody_sets
    reduce()


def thread_that_does_not_end():
    if RANK == 1:
        thread = threading.Thread(target=time.sleep, args=[FOREVER_S], daemon=True)
        thread.start()
        thread.join()  # guilty: thread_that_does_not_end
    reduce()


def pool_that_waits_for_itself():
    if RANK == 1:
        pool = concurrent.futures.ThreadPoolExecutor(1)
        nested = pool.submit(lambda: pool.submit(int).result())
        nested.result()  # guilty: pool_that_waits_for_itself
    reduce()


def coroutine_that_waits():
    async def wait():
        await asyncio.Event().wait()

    if RANK == 1:
        asyncio.run(wait())  # guilty: coroutine_that_waits
    reduce()


# -- processes


class Locked(torch.utils.data.Dataset):
    """A data set whose lock was held when its workers were forked."""

    def __init__(self):
        self.lock = threading.Lock()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with self.lock:
            return ONES


def loader_after_fork():
    data = Locked()
    if RANK == 1:
        data.lock.acquire()
    for _ in torch.utils.data.DataLoader(data, num_workers=1):  # guilty: loader_after_fork
        pass
    reduce()


def pool_after_fork():
    lock = threading.Lock()

    def work(_):
        with lock:
            return 1

    if RANK == 1:
        lock.acquire()
        globals()["work"] = work
        with multiprocessing.get_context("fork").Pool(1) as pool:
            pool.map(call_work, [1])  # guilty: pool_after_fork
    reduce()


def call_work(item):
    return globals()["work"](item)


def program_that_does_not_end():
    if RANK == 1:
        subprocess.run(["sleep", str(FOREVER_S)], check=True)  # guilty: program_that_does_not_end
    reduce()


def pipe_that_nobody_writes():
    if RANK == 1:
        read, _ = os.pipe()
        os.read(read, 1)  # guilty: pipe_that_nobody_writes
    reduce()


def file_lock():
    # Not in TMPDIR, which each instance has for itself.
    path = f"/tmp/raysm-hang-{os.environ['MASTER_PORT']}"
    file = open(path, "w")
    dist.barrier()
    if RANK == 0:
        fcntl.flock(file, fcntl.LOCK_EX)
        os.unlink(path)
    dist.barrier()
    if RANK == 1:
        fcntl.flock(file, fcntl.LOCK_EX)  # guilty: file_lock
    reduce()


def stopped():
    dist.barrier()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    reduce()


def waits_for_a_signal():
    if RANK == 1:
        signal.pause()  # guilty: waits_for_a_signal
    reduce()


# -- network


def silent_peer():
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))
        connection = socket.create_connection(server.getsockname())
        connection.recv(1)  # guilty: silent_peer
    reduce()


class Stalls(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.wfile.write(b"x" * 1000)
        self.wfile.flush()
        threading.Event().wait()

    def log_message(self, *_):
        pass


def download_that_stands_still():
    if RANK == 1:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stalls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answer = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}")
        answer.read()  # guilty: download_that_stands_still
    reduce()


# -- endless loops, which are work


def endless_loop():
    while RANK == 1:  # guilty: endless_loop
        pass
    reduce()


def endless_call():
    if RANK == 1:
        done = False
        number = 0
        while not done:
            number += 1
            done = number < 0  # guilty: endless_call
    reduce()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    reduce()
    print("begins", flush=True)
    globals()[sys.argv[1]]()
    dist.barrier()
