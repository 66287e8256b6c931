"""Stand-ins for the ``ray`` command and for the question which nodes are registered; run as programs.

``fake_ray.py FOLDER ray start --block ...`` listens on the GCS port if it is the head's, and stands in FOLDER under
its host's name while it lives. ``fake_ray.py FOLDER node_watcher IP:port`` says who stands there. ``HOST.broken`` in
FOLDER makes that host's node end at once, with the words that Ray has for it; ``HOST.deaf`` makes a head's GCS
answer nobody.
"""

import json
import os
import re
import signal
import socket
import sys
import time
import uuid
from pathlib import Path


def option(name):
    return next((text.split("=", 1)[1] for text in sys.argv if text.startswith(f"--{name}=")), None)


def ray(folder):
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
    if not (folder / f"{host}.unregistered").exists():
        whole = {"id": uuid.uuid4().hex, "address": "127.0.0.1", "pid": os.getpid(), "argv": sys.argv[2:]}
        beside = entry.with_suffix(".partial")
        beside.write_text(json.dumps(whole))
        beside.replace(entry)
    while True:
        if server:
            server.accept()[0].close()
        else:
            time.sleep(60)


def watch_nodes(folder):
    last = None
    while True:
        nodes = {}
        for entry in folder.glob("*.node"):
            node = json.loads(entry.read_text())
            if Path(f"/proc/{node['pid']}").exists():
                nodes[entry.stem] = {"id": node["id"], "address": node["address"]}
        if nodes != last:
            print(json.dumps(nodes), flush=True)
            last = nodes
        time.sleep(0.02)


if __name__ == "__main__":
    {"ray": ray, "node_watcher": watch_nodes}[sys.argv[2]](Path(sys.argv[1]))
