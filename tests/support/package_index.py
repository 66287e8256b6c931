"""A package index on this machine's loopback, and a port that is as silent as a firewall."""

import base64
import contextlib
import http.server
import socket
import threading


@contextlib.contextmanager
def package_index(*wheels, token=None, fetched=None):
    """Yield the address of an index of ``wheels`` (paths); with ``token`` the user ``aws`` alone.

    The names of the files that were asked for are added to the list ``fetched``. As in
    CodeArtifact, they lie below it.
    """
    files = {wheel.name: wheel.read_bytes() for wheel in wheels}
    wanted = token and "Basic " + base64.b64encode(f"aws:{token}".encode()).decode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if wanted and self.headers["Authorization"] != wanted:
                return self._answer(401, b"")
            *_, name = self.path.rstrip("/").split("/")
            if name in files:
                if fetched is not None:
                    fetched.append(name)
                return self._answer(200, files[name], "application/octet-stream")
            links = "".join(
                f'<a href="{file}">{file}</a>' for file in files if file.startswith(f"{name}-")
            )
            return self._answer(200 if links else 404, links.encode())

        def _answer(self, status, body, kind="text/html"):
            self.send_response(status)
            if status == 401:
                self.send_header("WWW-Authenticate", "Basic")
            self.send_header("Content-Type", kind)
            self.send_header(
                "Cache-Control", "max-age=600" if kind.endswith("stream") else "no-store"
            )
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def silent_port():
    """Yield a port of loopback that answers nobody, as where a VPC has no NAT: its queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as callers:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
