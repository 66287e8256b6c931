"""Trainings that print nothing for a minute, and work all the while, by the name of the case."""

import hashlib
import http.server
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import torch
import torch.distributed as dist

LASTS_S = 45.0
RANK = int(os.environ["RANK"])
until_s = math.inf


def goes_on():
    return time.monotonic() < until_s


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


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    print("begins", flush=True)
    until_s = time.monotonic() + LASTS_S
    globals()[sys.argv[1]]()
    dist.barrier()
