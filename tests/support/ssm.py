"""SSM's gateway behind a port of this machine, without a job: its instance is this machine itself."""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from concurrent.futures import Future
from random import Random

from werkzeug.serving import make_server
from werkzeug.wrappers import Request

from raysm.client.tunnel.forwarding import Forwarding
from raysm.client.tunnel.session import Pass, port_document
from raysm.client.tunnel.tunnel import Tunnel
from raysm.errors import ServiceError
from raysm.local.instances.base import Instance, Visit
from raysm.local.scenario import Ssm
from raysm.local.server.moto_internals import request_handler
from raysm.local.server.ssm.documents import work_of
from raysm.local.server.ssm.gateway import PATH, Gateway
from raysm.local.server.ssm.upgrade import HandedOver, serve_channel
from tests.support.echo import _answer

__all__ = ["Entered", "Here", "Served", "echoing"]


class Here(Instance):
    """An instance that is this process: its loopback is ours."""

    host, address, pid = "algo-1", "127.0.0.1", 0

    def __init__(self):
        self.exited = Future()

    def signal(self, number):
        raise NotImplementedError

    def end(self):
        raise NotImplementedError

    def enter(self, command, *, stdin, stdout):
        return Visit(exited=Future(), leave=lambda: None)


class Entered(Here):
    """This machine as an instance in which commands run, as children of this process."""

    def enter(self, command, *, stdin, stdout):
        with open(stdin, "rb") as source, open(stdout, "wb", buffering=0) as target:
            process = subprocess.Popen(command, stdin=source, stdout=target, stderr=target, start_new_session=True)
        exited = Future()
        threading.Thread(target=lambda: exited.set_result(process.wait()), daemon=True).start()
        return Visit(exited=exited, leave=lambda: _kill_group(process.pid))


def _kill_group(leader):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


class _Quiet(request_handler()):
    def log(self, type, message, *args):
        pass


class Served:
    """A gateway, and sessions of it as the client asks for them; a context manager."""

    def __init__(self, instance=None, **switches):
        self.gateway = Gateway(Ssm(**switches), Random(7))
        self.instance = instance or Here()
        self.resumed = 0
        self.terminated = []
        self.away = 0
        self.server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def _answer(self, environ, start_response):
        with contextlib.suppress(HandedOver):
            serve_channel(Request(environ), self.gateway)
        raise ConnectionResetError

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.gateway.close()
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()

    def begin(self, document="AWS-StartPortForwardingSession", **parameters):
        work = work_of(document, {name: [value] for name, value in parameters.items()})
        return self.entry(*self.gateway.start(self.instance, work))

    def entry(self, session, token):
        url = f"ws://127.0.0.1:{self.server.server_port}{PATH}{session}?role=publish_subscribe"
        return Pass(session=session, url=url, token=token)

    # As the client's ``Sessions`` has it

    async def start(self, target, document):
        parameters = {name: values[0] for name, values in document.parameters.items()}
        return await asyncio.to_thread(self.begin, document.name, **parameters)

    async def resume(self, session):
        if self.away:
            self.away -= 1
            raise ServiceError("away", is_transient=True)
        self.resumed += 1
        token = await asyncio.to_thread(self.gateway.resume, session)
        return None if token is None else self.entry(session, token)

    async def terminate(self, session):
        self.terminated.append(session)
        await asyncio.to_thread(self.gateway.terminate, session)

    def tunnel(self, port):
        return Tunnel(lambda: Forwarding(self, "this machine", port_document(port)))


@contextlib.contextmanager
def echoing(name=b""):
    """A server on loopback that sends back what it gets; its port."""
    import socket

    server = socket.create_server(("127.0.0.1", 0))
    connections = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                connections.append(connection)
                threading.Thread(target=_quietly, args=(connection, name), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for connection in connections:
            connection.close()


def _quietly(connection, name):
    with contextlib.suppress(OSError):
        _answer(connection, name)
