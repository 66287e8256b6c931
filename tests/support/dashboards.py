"""Waiting for a dashboard that starts at its first request."""

import http.client
import time

WAIT_S = 300.0


def await_dashboard(port):
    """Ask the dashboard at ``127.0.0.1:port`` until it answers."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
        try:
            connection.request("HEAD", "/")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        finally:
            connection.close()
