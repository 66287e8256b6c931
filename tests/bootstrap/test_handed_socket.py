"""A program whose server takes over a socket that listens already."""

import socket
import subprocess
import sys

from raysm.bootstrap import handed_socket

PROGRAM = """
import socket, sys
assert __name__ == "__main__"
port = int(sys.argv[1])
with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
    other.bind(("127.0.0.1", 0))
    print(other.getsockname()[1] != port)
server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
server.bind(("127.0.0.1", port))
print(server.getsockname()[1] == port, server.get_inheritable(), type(socket.socket) is type, len(sys.argv))
caller, _ = server.accept()
caller.sendall(caller.recv(100).upper())
after = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
print(type(after).__qualname__)
"""


def test_the_bind_to_its_address_takes_it_and_its_callers_and_every_other_is_as_ever(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        caller = socket.create_connection(("127.0.0.1", port), timeout=60)
        caller.sendall(b"first")
        command = [sys.executable, "-P", handed_socket.__file__, str(listener.fileno())]
        process = subprocess.Popen(
            [*command, str(tmp_path / "program.py"), str(port)],
            pass_fds=[listener.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
    # This end of the listener is closed: who answers has taken over the other.
    with caller, process:
        assert caller.recv(100) == b"FIRST"
        assert process.stdout.read().split() == ["True", "True", "False", "True", "2", "socket"]
    assert process.returncode == 0
