"""Trainings that print nothing for half a minute, and work all the while, one case after the other."""

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import gzip
import hashlib
import http.server
import itertools
import json
import logging
import lzma
import math
import mmap
import multiprocessing
import os
import pathlib
import pickle
import queue
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.request

import numpy as np
import swapping as swapping_pages
import torch
import torch.distributed as dist

import raysm

LASTS_S = 20.0
RANK = int(os.environ["RANK"])
MIB = 1 << 20
until_s = math.inf


def goes_on():
    return time.monotonic() < until_s


def repeats_in_a_folder(work):
    """Return a case in which rank 1 calls ``work`` with a new folder again and again."""

    @functools.wraps(work)
    def case():
        with tempfile.TemporaryDirectory() as folder:
            while RANK == 1 and goes_on():
                work(pathlib.Path(folder))

    del case.__wrapped__
    return case


# -- computations


def compute():
    while goes_on():
        torch.linalg.svd(torch.rand(200, 200))


def one_long_call():
    if RANK == 1:
        # One call without an end in sight, at one line.
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", int(2e6 * LASTS_S / 2))


def validation_on_rank_0():
    if RANK == 0:
        compute()


def python_loop():
    number = 0
    while RANK == 1 and goes_on():
        number += 1


def compilation():
    if RANK == 1:
        code = f"import time\nuntil = time.monotonic() + {LASTS_S}\nwhile time.monotonic() < until: pass"
        subprocess.run([sys.executable, "-c", code], check=True)


def many_short_programs():
    while RANK == 1 and goes_on():
        subprocess.run([sys.executable, "-c", "sum(range(1000000))"], check=True)


def compiled_model():
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(8)], torch.nn.GELU())
    while RANK == 1 and goes_on():
        torch._dynamo.reset()
        torch.compile(model)(torch.rand(4, 32)).sum().backward()


# -- files


def checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        while RANK == 0 and goes_on():
            path = os.path.join(folder, "model.pt")
            torch.save(torch.rand(1 << 22), path)
            os.sync()
            time.sleep(0.5)


def slow_writes():
    with tempfile.NamedTemporaryFile() as file:
        while RANK == 0 and goes_on():
            file.write(b"x" * 50_000)
            file.flush()
            time.sleep(0.5)


# -- the network


class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        for _ in range(int(LASTS_S * 2)):
            self.wfile.write(b"x" * 60_000)
            time.sleep(0.5)

    def log_message(self, *_):
        pass


def slow_download():
    if RANK == 1:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answer = urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}")
        with tempfile.TemporaryFile() as file:
            while chunk := answer.read(30_000):
                file.write(chunk)


def large_collectives():
    tensor = torch.ones(1 << 20)
    for _ in range(120):
        dist.all_reduce(tensor)
        time.sleep(0.2)


def silent_steps():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(500, 500))
    for _ in range(int(LASTS_S * 10)):
        model(torch.rand(64, 500)).sum().backward()
        time.sleep(0.05)


class Decoded(torch.utils.data.Dataset):
    def __len__(self):
        return int(LASTS_S / 2)

    def __getitem__(self, index):
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + 2:
            torch.rand(100, 100) @ torch.rand(100, 100)
        return torch.ones(1)


def slow_loader():
    for _ in torch.utils.data.DataLoader(Decoded(), num_workers=1):
        pass


def checksums():
    block = b"x" * (1 << 20)
    while RANK == 1 and goes_on():
        hashlib.sha256(block).digest()


def bursts():
    while RANK == 1 and goes_on():
        begun_s = time.monotonic()
        while time.monotonic() < begun_s + 0.3:
            pass
        time.sleep(1.5)


def prints_and_sleeps():
    while goes_on():
        print("waits for its turn", flush=True)
        time.sleep(4)


def prints_dots():
    while goes_on():
        print("\r12%|", int(time.monotonic()), end="", flush=True)
        time.sleep(2)


def sorting():
    if RANK == 1:
        while goes_on():
            np.sort(np.random.rand(20 * MIB))


def shuffling():
    order = np.arange(10 * MIB)
    while RANK == 1 and goes_on():
        np.random.shuffle(order)


def tokenization():
    text = "The model isn't trained on 12,345 words yet. " * 10_000
    while RANK == 1 and goes_on():
        re.findall(r"\w+(?:'\w+)?|[^\w\s]", text)


def slow_pattern():
    # Backtracks for minutes in one call that holds Python's global lock.
    while RANK == 1 and goes_on():
        re.match(r"(a|aa)+$", "a" * 34 + "b")


def parsing_of_json():
    text = json.dumps([{"number": number, "name": str(number)} for number in range(100_000)])
    while RANK == 1 and goes_on():
        json.loads(text)


def pickling():
    rows = [(number, str(number)) for number in range(200_000)]
    while RANK == 1 and goes_on():
        pickle.loads(pickle.dumps(rows))


def garbage_collection():
    kept = [[number] for number in range(1_000_000)]
    while RANK == 1 and goes_on():
        gc.collect()
    kept.clear()


def swapping():
    if RANK == 1:
        # The child leaves the group of little memory when it ends.
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            swapping_pages.touch_pages(goes_on)
            os._exit(0)


def lists_to_tensors():
    rows = [[float(number)] * 100 for number in range(10_000)]
    while RANK == 1 and goes_on():
        torch.tensor(rows)


def growing_cache():
    # Little processor time, but new memory each time.
    cache = []
    while RANK == 1 and goes_on():
        cache.append(bytearray(b"x") * (4 * MIB))
        time.sleep(0.5)


def compiled_program():
    if RANK == 1:
        code = "\n".join(
            f"int f{number}(int x) {{ return x * {number}; }}" for number in range(1000)
        )
        while goes_on():
            subprocess.run(
                ["gcc", "-O2", "-x", "c", "-c", "-o", "/dev/null", "-"],
                input=code,
                text=True,
                check=True,
            )


def threads_that_take_turns():
    turns = [threading.Semaphore(1), threading.Semaphore(0)]

    def take(own):
        while goes_on():
            turns[own].acquire(timeout=1)
            turns[1 - own].release()

    if RANK == 1:
        threads = [threading.Thread(target=take, args=[own]) for own in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def threads_that_hash():
    block = b"x" * (10 * MIB)
    if RANK == 1:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            while goes_on():
                [*pool.map(hashlib.sha256, [block] * 4)]


def queue_of_a_slow_thread():
    batches = queue.Queue(maxsize=2)

    def load():
        while goes_on():
            batches.put(torch.linalg.svd(torch.rand(300, 300)))
        batches.put(None)

    if RANK == 1:
        threading.Thread(target=load).start()
        while batches.get() is not None:
            pass


# -- processes


def square(number):
    return sum(number * number for number in range(1_000_000))


def pool_of_processes():
    if RANK == 1:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            while goes_on():
                pool.map(square, range(4))


def executor_with_new_processes():
    if RANK == 1:
        while goes_on():
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                pool.submit(math.sqrt, 4).result()


def forked_child():
    if RANK == 1:
        child = os.fork()
        if child == 0:
            while goes_on():
                pass
            os._exit(0)
        os.waitpid(child, 0)


def program_of_a_program():
    if RANK == 1:
        code = f"import time\nuntil = time.monotonic() + {LASTS_S}\nwhile time.monotonic() < until: pass"
        subprocess.run(
            ["sh", "-c", 'sh -c \'"$0" -c "$1"; true\' "$0" "$1"; true', sys.executable, code],
            check=True,
        )


def pipeline_of_programs():
    while RANK == 1 and goes_on():
        os.system("head -c 300000000 /dev/zero | gzip -1 | md5sum > /dev/null")


def program_in_the_background():
    # The shell ends at once, and the program is no child of the rank.
    with tempfile.TemporaryDirectory() as folder:
        done = os.path.join(folder, "done")
        work = f"timeout {LASTS_S} gzip -9 < /dev/zero > /dev/null; touch {done}"
        if RANK == 1:
            subprocess.run(["sh", "-c", f"({work}) > /dev/null 2>&1 &"], check=True)
            while not os.path.exists(done):
                time.sleep(0.5)


@repeats_in_a_folder
def installation(folder):
    (folder / "setup.py").write_text(
        "from setuptools import setup; setup(name='slow', py_modules=['slow'])"
    )
    (folder / "slow.py").write_text("")
    command = "-m pip install --no-deps --no-build-isolation --no-index --upgrade --quiet --target"
    subprocess.run([sys.executable, *command.split(), folder / "site", folder], check=True)


# -- more files


@repeats_in_a_folder
def compressed_checkpoint(folder):
    with gzip.open(folder / "model.pkl.gz", "wb") as file:
        pickle.dump(np.random.rand(MIB), file)


@repeats_in_a_folder
def slow_decompression(folder):
    path = folder / "data.xz"
    if not path.exists():
        path.write_bytes(lzma.compress(os.urandom(MIB) + b"x" * 200 * MIB, preset=0))
    with lzma.open(path) as file:
        while file.read(MIB):
            pass


@repeats_in_a_folder
def synchronized_writes(folder):
    with (folder / "log").open("ab") as file:
        file.write(b"x" * 4096)
        file.flush()
        os.fsync(file.fileno())


@repeats_in_a_folder
def writes_to_a_mapped_file(folder):
    # No system call writes, only faults of pages do.
    with (folder / "data").open("w+b") as file:
        file.truncate(8 * MIB)
        with mmap.mmap(file.fileno(), 0) as data:
            for begin in range(0, len(data), 4096):
                data[begin] = 1
            data.flush()
    time.sleep(0.5)


@repeats_in_a_folder
def reads_of_a_mapped_file(folder):
    path = folder / "data.npy"
    if not path.exists():
        np.save(path, np.ones(MIB))
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    np.load(path, mmap_mode="r").sum()
    time.sleep(0.5)


@repeats_in_a_folder
def random_reads(folder):
    path = folder / "data"
    if not path.exists():
        path.write_bytes(os.urandom(64 * MIB))
    with path.open("rb") as file:
        for begin in np.random.randint(0, 64 * MIB, 40):
            os.pread(file.fileno(), 4096, int(begin))
            time.sleep(0.02)


@repeats_in_a_folder
def copies_of_files(folder):
    source = folder / "data"
    if not source.exists():
        source.write_bytes(b"x" * 50 * MIB)
    shutil.copyfile(source, folder / "copy")
    time.sleep(0.5)


@repeats_in_a_folder
def packing(folder):
    with tarfile.open(folder / "code.tar.gz", "w:gz") as archive:
        archive.add(os.path.dirname(json.__file__))
        archive.add(os.path.dirname(asyncio.__file__))


@repeats_in_a_folder
def unpacking(folder):
    path = folder / "code.tar.gz"
    if not path.exists():
        with tarfile.open(path, "w:gz") as archive:
            archive.add(os.path.dirname(np.__file__), "numpy")
    with tarfile.open(path) as archive:
        archive.extractall(folder / "unpacked", filter="data")


@repeats_in_a_folder
def many_small_files(folder):
    for number in range(1000):
        (folder / str(number)).write_text("x")
    for number in range(1000):
        (folder / str(number)).unlink()


@repeats_in_a_folder
def walks_over_folders(folder):
    sum(len(files) for _, _, files in os.walk(os.path.dirname(torch.__file__)))


@repeats_in_a_folder
def inserts_into_a_database(folder):
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as runs:
        runs.execute("create table if not exists runs (loss real)")
        for _ in range(20):
            runs.execute("insert into runs values (0.5)")
            runs.commit()


def query_of_a_database():
    while RANK == 1 and goes_on():
        with contextlib.closing(sqlite3.connect(":memory:")) as runs:
            runs.execute(
                "with recursive n(i) as (select 1 union all select i + 1 from n limit 5000000) select sum(i) from n"
            ).fetchone()


def wait_for_the_file_of_rank_0():
    path = pathlib.Path(f"/tmp/raysm-slow-{os.environ['MASTER_PORT']}")
    if RANK == 0:
        compute()
        path.touch()
    while RANK == 1 and not path.exists():
        time.sleep(0.5)
    dist.barrier()
    path.unlink(missing_ok=True)


# -- more of the network


def send(connection):
    while goes_on():
        with contextlib.suppress(OSError):
            connection.sendall(b"x" * MIB)
        time.sleep(0.2)
    connection.close()


def download_into_memory():
    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))
        reader = socket.create_connection(server.getsockname())
        threading.Thread(target=send, args=[server.accept()[0]]).start()
        chunks = []
        while chunk := reader.recv(MIB):
            chunks.append(chunk)


def concurrent_downloads():
    async def answer(reader, writer):
        while goes_on():
            writer.write(b"x" * 100_000)
            await writer.drain()
            await asyncio.sleep(0.1)
        writer.close()

    async def download(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while await reader.read(100_000):
            pass
        writer.close()

    async def main():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        await asyncio.gather(*[download(port) for _ in range(20)])

    if RANK == 1:
        asyncio.run(main())


def upload():
    def take(server):
        connection, _ = server.accept()
        while connection.recv(MIB):
            pass

    if RANK == 1:
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=take, args=[server]).start()
        block = os.urandom(MIB)
        with socket.create_connection(server.getsockname()) as connection:
            while goes_on():
                connection.sendall(hashlib.sha256(block).digest() + block)
                time.sleep(0.05)


def retries_with_backoff():
    if RANK == 1:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            address = closed.getsockname()
        for attempt in itertools.takewhile(lambda _: goes_on(), itertools.count()):
            body = hashlib.pbkdf2_hmac("sha256", b"key", b"salt", 300_000)
            with (
                contextlib.suppress(ConnectionRefusedError),
                socket.create_connection(address) as connection,
            ):
                connection.sendall(body)
            time.sleep(min(4, 0.1 * 2**attempt))


def sends_between_ranks():
    tensor = torch.ones(MIB)
    for _ in range(int(LASTS_S * 2)):
        if RANK == 0:
            dist.send(tensor, dst=1)
        else:
            dist.recv(tensor, src=0)
        time.sleep(0.5)


def gathered_objects():
    for _ in range(int(LASTS_S)):
        dist.all_gather_object([None, None], list(range(300_000)))
        time.sleep(0.5)


# -- data loaders


class Files(torch.utils.data.Dataset):
    def __len__(self):
        return int(LASTS_S)

    def __getitem__(self, index):
        with tempfile.TemporaryFile() as file:
            for _ in range(10):
                file.write(os.urandom(100_000))
                time.sleep(0.1)
        return torch.ones(1)


def loader_that_reads_slowly():
    for _ in torch.utils.data.DataLoader(Files(), num_workers=1):
        pass


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(int(LASTS_S)):
            if RANK == 1:
                torch.linalg.svd(torch.rand(400, 400))
            time.sleep(0.7)
            yield torch.ones(1000)


def loader_of_a_stream():
    for _ in torch.utils.data.DataLoader(Stream(), num_workers=0, batch_size=4):
        pass


# -- lines that are no print


def warnings_of_a_logger():
    while goes_on():
        logging.getLogger("train").warning("no free slot yet")
        time.sleep(4)


def reported_metrics():
    for step in range(int(LASTS_S / 4)):
        raysm.report(step=step, loss=0.5)
        time.sleep(4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in sys.argv[1:]:
        dist.barrier()
        if RANK == 0:
            print(f"begins {name}", flush=True)
        until_s = time.monotonic() + LASTS_S
        globals()[name]()
    dist.barrier()
