"""Another user of this machine who listens at ports of ours, and keeps what it is told."""

import contextlib
import json
import subprocess
import sys

from tests.support.strangers import NOBODY, needs_two_users

__all__ = ["NOBODY", "Thief", "needs_two_users", "thief"]

# As root until all is imported: the other user need not be able to read this Python. It takes each
# port as soon as it can be had, says whatever it is told to any caller, and prints what it hears.
CODE = f"""
import json, os, selectors, socket, sys, time
ports, address, greeting, until_s = json.loads(sys.argv[1])
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
selector, wanted = selectors.DefaultSelector(), set(ports)
end = time.monotonic() + until_s
print(json.dumps(["ready"]), flush=True)
while time.monotonic() < end:
    for port in list(wanted):
        server = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((address, port))
            server.listen(100)
        except OSError:
            server.close()
            continue
        wanted.remove(port)
        server.setblocking(False)
        selector.register(server, selectors.EVENT_READ, port)
        print(json.dumps(["has", port]), flush=True)
    if os.getppid() == 1:
        break
    for key, _ in (selector.select(0.0005) if selector.get_map() else ()):
        if isinstance(key.data, int):
            caller, _ = key.fileobj.accept()
            caller.setblocking(False)
            try:
                caller.send(greeting.encode("latin-1"))
            except OSError:
                pass
            selector.register(caller, selectors.EVENT_READ, (key.data,))
            continue
        try:
            data = key.fileobj.recv(65536)
        except OSError:
            data = b""
        if data:
            print(json.dumps(["heard", key.data[0], data.decode("latin-1")]), flush=True)
        else:
            selector.unregister(key.fileobj)
            key.fileobj.close()
"""


class Thief:
    """Attributes: events, what it has done so far: ``["has", port]`` and ``["heard", port, text]``."""

    def __init__(self, process):
        self.process, self.events = process, []

    def next(self):
        """Return what it does next; None once it has ended."""
        line = self.process.stdout.readline()
        if not line:
            return None
        self.events.append(json.loads(line))
        return self.events[-1]

    def await_port(self, port):
        """Wait until it listens at a port."""
        while (event := self.next()) != ["has", port]:
            assert event is not None, "it ended"

    def end(self):
        """End it; return all that it heard."""
        self.process.terminate()
        while self.next() is not None:
            pass
        return "".join(event[2] for event in self.events if event[0] == "heard")


@contextlib.contextmanager
def thief(*ports, address="127.0.0.1", greeting="", within_s=300.0):
    """Yield another user's process that wants ``ports`` and says ``greeting`` to each caller."""
    told = json.dumps([ports, address, greeting, within_s])
    with subprocess.Popen(
        [sys.executable, "-c", CODE, told], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            other = Thief(process)
            assert other.next() == ["ready"]
            yield other
        finally:
            process.kill()
