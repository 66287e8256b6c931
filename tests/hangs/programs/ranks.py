"""Trainings that hang, by the name of the case.

Rank 1 of two is to blame, or rank 0 where the mark says so, at the line with the case's name.
"""

import asyncio
import concurrent.futures
import ctypes
import fcntl
import http.server
import multiprocessing
import os
import queue
import select
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import swapping as swapping_pages
import torch
import torch.distributed as dist
from series import run_in_children

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


def groups_in_another_order():
    first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
    for group in (second, first) if RANK == 1 else (first, second):
        dist.all_reduce(ONES.clone(), group=group)  # guilty: groups_in_another_order


def gather_to_two_ranks():
    gathered = [ONES.clone() for _ in range(2)]
    dist.gather(ONES, gathered, dst=RANK)  # guilty: gather_to_two_ranks


def send_without_receive():
    if RANK == 1:
        dist.send(torch.ones(1 << 20), dst=0)  # guilty: send_without_receive
    reduce()


def receive_with_another_tag():
    if RANK == 0:
        dist.isend(ONES, dst=1, tag=1)
    else:
        dist.recv(ONES.clone(), src=0, tag=2)  # guilty: receive_with_another_tag
    reduce()


def receive_in_the_background():
    if RANK == 1:
        work = dist.irecv(ONES.clone(), src=0)
        work.wait()  # guilty: receive_in_the_background
    reduce()


def gradients_without_synchronization():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if RANK == 1:
        with model.no_sync():
            model(ONES).sum().backward()
        dist.barrier()  # guilty: gradients_without_synchronization
    model(ONES).sum().backward()


def validation_by_rank_0_alone():
    if RANK == 0:
        dist.barrier()  # guilty rank 0: validation_by_rank_0_alone
    reduce()


def lock_file_of_an_earlier_run():
    with tempfile.NamedTemporaryFile() as lock:
        while RANK == 0 and os.path.exists(lock.name):
            time.sleep(0.1)  # guilty rank 0: lock_file_of_an_earlier_run
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


def condition_that_nobody_notifies():
    condition = threading.Condition()
    if RANK == 1:
        with condition:
            condition.notify()  # too early
            condition.wait()  # guilty: condition_that_nobody_notifies
    reduce()


def barrier_of_threads():
    barrier = threading.Barrier(3)
    if RANK == 1:
        threading.Thread(target=barrier.wait, daemon=True).start()
        barrier.wait()  # guilty: barrier_of_threads
    reduce()


def semaphore_that_is_used_up():
    slots = threading.Semaphore(2)
    for _ in range(3 if RANK == 1 else 2):
        slots.acquire()  # guilty: semaphore_that_is_used_up
    reduce()


def queue_whose_tasks_are_not_done():
    tasks = queue.Queue()
    if RANK == 1:
        tasks.put(1)
        tasks.get()
        tasks.join()  # guilty: queue_whose_tasks_are_not_done
    reduce()


def executor_that_cannot_end():
    if RANK == 1:
        with concurrent.futures.ThreadPoolExecutor(1) as pool:  # guilty: executor_that_cannot_end
            pool.submit(threading.Event().wait)
    reduce()


def thread_after_the_end():
    def watch():
        threading.Event().wait()  # guilty: thread_after_the_end

    if RANK == 1:
        threading.Thread(target=watch).start()
        sys.exit()
    reduce()


def handler_that_takes_the_lock():
    lock = threading.Lock()

    def save(*_):
        with lock:  # guilty: handler_that_takes_the_lock
            pass

    if RANK == 1:
        signal.signal(signal.SIGUSR2, save)
        with lock:
            os.kill(os.getpid(), signal.SIGUSR2)
    reduce()


def lock_in_native_code():
    if RANK == 1:
        # PyDLL keeps Python's global lock, as an extension may do.
        mutex = ctypes.create_string_buffer(64)
        lock = ctypes.PyDLL(None).pthread_mutex_lock
        lock(mutex)
        lock(mutex)  # guilty: lock_in_native_code
    reduce()


def coroutines_that_wait_for_each_other():
    async def wait_for(own, other):
        await other.wait()
        own.set()

    async def wait_for_both():
        first, second = asyncio.Event(), asyncio.Event()
        await asyncio.gather(wait_for(first, second), wait_for(second, first))

    if RANK == 1:
        asyncio.run(wait_for_both())  # guilty: coroutines_that_wait_for_each_other
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


def pipe_that_is_full():
    if RANK == 1:
        program = subprocess.Popen(
            [sys.executable, "-c", "print('x' * 1000000)"], stdout=subprocess.PIPE
        )
        program.wait()  # guilty: pipe_that_is_full
    reduce()


def program_that_waits_for_input():
    if RANK == 1:
        program = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        program.stdout.read()  # guilty: program_that_waits_for_input
    reduce()


def named_pipe_without_reader():
    if RANK == 1:
        path = os.path.join(tempfile.mkdtemp(), "pipe")
        os.mkfifo(path)
        open(path, "w")  # guilty: named_pipe_without_reader
    reduce()


def process_whose_queue_is_not_read():
    if RANK == 1:
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        process = context.Process(target=results.put, args=["x" * 1_000_000])
        process.start()
        process.join()  # guilty: process_whose_queue_is_not_read
    reduce()


def lock_of_a_killed_process():
    if RANK == 1:
        context = multiprocessing.get_context("fork")
        lock = context.Lock()
        process = context.Process(target=lock.acquire)
        process.start()
        process.join()
        lock.acquire()  # guilty: lock_of_a_killed_process
    reduce()


def stopped_child():
    if RANK == 1:
        child = subprocess.Popen(["sleep", str(FOREVER_S)])
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, 0)  # guilty: stopped_child
    reduce()


def database_lock():
    if RANK == 1:
        path = os.path.join(tempfile.mkdtemp(), "runs.db")
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("begin exclusive")
        waiting = sqlite3.connect(path, timeout=FOREVER_S)
        waiting.execute("create table runs (name text)")  # guilty: database_lock
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


def peer_that_does_not_read():
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))
        connection = socket.create_connection(server.getsockname())
        connection.sendall(b"x" * 100_000_000)  # guilty: peer_that_does_not_read
    reduce()


def server_that_does_not_accept():
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0), backlog=0)
        address = server.getsockname()
        connections = []
        while len(connections) < 4:
            connection = socket.create_connection(address)  # guilty: server_that_does_not_accept
            connections.append(connection)
    reduce()


def handshake_without_answer():
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))
        connection = socket.create_connection(server.getsockname())
        secure = ssl.create_default_context().wrap_socket
        secure(connection, server_hostname="x")  # guilty: handshake_without_answer
    reduce()


def select_without_events():
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))
        select.select([server], [], [])  # guilty: select_without_events
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


# -- endless work


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


def swapping():
    if RANK == 1:
        swapping_pages.touch_pages(lambda: True)  # guilty: swapping
    reduce()


def run(name):
    dist.init_process_group("gloo", init_method="env://")
    reduce()
    if RANK == 0:
        print(f"begins {name}", flush=True)
    globals()[name]()
    dist.barrier()


if __name__ == "__main__":
    run_in_children(run)
