"""Goes into a job that runs, by a tunnel to a port that its script listens at, and says what came of it.

What flows in are a job and a port, what flows out is an observation. That nobody is let in is one too: many accounts
forbid it, and their jobs run all the same.
"""

import socket
import time

from raysm.client.first_job.observing import Observation
from raysm.client.job import Job
from raysm.errors import RaysmError

__all__ = ["TOPIC", "enter"]

TOPIC = "tunnel"
"""What the observation is about."""

HEAD = "algo-1"

ANSWER_S = 30.0
"""Seconds for an answer of the other end, which is written as soon as somebody comes."""

ANSWER_BYTES = 256


def enter(job: Job, port: int) -> Observation:
    """Return what the head of a job answers at ``port`` of its loopback, or why it could not be asked."""
    begin_s = time.monotonic()
    try:
        # Remote debugging is switched on on the way: the job was made without it, as an account may demand.
        with job.tunnel(port) as tunnel, socket.create_connection(("127.0.0.1", tunnel.port), ANSWER_S) as visitor:
            answer = _read(visitor)
    except (RaysmError, OSError) as error:
        return Observation(topic=TOPIC, host=HEAD, values={"reached": False, "obstacle": str(error)})
    if not answer:
        # A tunnel takes a connection before the other end does: one that ends without a word went nowhere.
        return Observation(topic=TOPIC, host=HEAD, values={"reached": False, "obstacle": "it answered nothing"})
    seconds = round(time.monotonic() - begin_s, 1)
    return Observation(topic=TOPIC, host=HEAD, values={"reached": True, "answer": answer, "seconds": seconds})


def _read(visitor: socket.socket) -> str:
    """Return what the other end says until it ends."""
    answer = b""
    while len(answer) < ANSWER_BYTES and (chunk := visitor.recv(ANSWER_BYTES)):
        answer += chunk
    return answer.decode(errors="replace").strip()
