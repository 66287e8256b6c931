"""A job whose instances listen on their loopback, and say at which port: what it gets it sends back."""

import json
import os
import socket
import sys
import threading

ECHO = f"{sys.executable} {__file__}"
"""The command of an instance; with a port behind it, it listens there, and says its host's name
first."""


def serve(port=0, name=b""):
    """Listen on loopback; send the host's name to whoever connects, then all that he sends."""
    server = socket.create_server(("127.0.0.1", port))
    print("listening on", server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection, name), daemon=True).start()


def _answer(connection, name):
    with connection:
        connection.sendall(name)
        while data := connection.recv(1 << 16):
            connection.sendall(data)


def exchange(address, data):
    """Send ``data`` and return as many bytes as come back, from a thread each."""
    with socket.create_connection(address, timeout=600) as connection:
        sending = threading.Thread(target=connection.sendall, args=(data,))
        sending.start()
        back = bytearray()
        while len(back) < len(data):
            part = connection.recv(1 << 20)
            if not part:
                break
            back += part
        sending.join()
    return bytes(back)


if __name__ == "__main__":
    if sys.argv[1:]:
        base = os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")
        with open(f"{base}/input/config/resourceconfig.json") as file:
            serve(int(sys.argv[1]), json.load(file)["current_host"].encode())
    serve()
