"""A stand-in for the ``ray`` command: ``fake_ray.py FOLDER ray start ...`` stands in FOLDER under its host's name.

If it is the head's, it listens on the GCS port, and tells who stands there, or in the JSON of a
file ``NAME.nodes``. ``HOST.broken`` in FOLDER makes that host's node end at once, ``HOST.deaf`` a
head's GCS answer nobody. With ``--wait`` it reads on stdin whom to join.
"""

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys
import threading
import time
import uuid
from pathlib import Path


def option(name):
    return next((text.split("=", 1)[1] for text in sys.argv if text.startswith(f"--{name}=")), None)


def ray(folder):
    if sys.argv[3] == "--wait":
        del sys.argv[3]
        sys.argv.append(f"--address={sys.stdin.readline().strip()}")
    host = re.search(r"raysm.io/host=([^,]+)", option("labels"))[1]
    if (folder / f"{host}.broken").exists():
        print(
            "Some Ray subprocesses exited unexpectedly:\n  raylet [exit code=-9]\nRemaining processes will be killed."
        )
        sys.exit(1)
    listens = "--head" in sys.argv and not (folder / f"{host}.deaf").exists()
    server = socket.create_server(("127.0.0.1", int(option("port")))) if listens else None
    entry = folder / f"{host}.node"

    def end(*_):
        entry.unlink(missing_ok=True)
        sys.exit(1)

    signal.signal(signal.SIGTERM, end)
    if "--head" in sys.argv:
        path = Path(option("temp-dir"), f"raysm-nodes-{option('port')}")
        threading.Thread(target=tell_nodes, args=(folder, path), daemon=True).start()
    if not (folder / f"{host}.unregistered").exists():
        whole = {
            "id": uuid.uuid4().hex,
            "address": "127.0.0.1",
            "pid": os.getpid(),
            "argv": sys.argv[2:],
        }
        beside = entry.with_suffix(".partial")
        beside.write_text(json.dumps(whole))
        beside.replace(entry)
    while True:
        if server:
            server.accept()[0].close()
        else:
            time.sleep(60)


def tell_nodes(folder, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        while True:
            caller, _ = server.accept()
            # Until it has left.
            with caller, contextlib.suppress(OSError):
                watch_nodes(folder, caller)


def watch_nodes(folder, caller):
    last = None
    while not select.select([caller], [], [], 0.02)[0]:
        nodes = {}
        for entry in folder.glob("*.node"):
            with contextlib.suppress(FileNotFoundError):
                node = json.loads(entry.read_text())
                if Path(f"/proc/{node['pid']}").exists():
                    nodes[entry.stem] = {"id": node["id"], "address": node["address"]}
        for others in folder.glob("*.nodes"):
            nodes |= json.loads(others.read_text())
        if nodes != last:
            caller.sendall(json.dumps(nodes).encode() + b"\n")
            last = nodes


if __name__ == "__main__":
    ray(Path(sys.argv[1]))
