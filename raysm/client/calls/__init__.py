"""How each API is called: what a request becomes as its parameters, and where its jobs leave what they made.

To call a further API is to write its module here, and one line below.
"""

from collections.abc import Mapping

from raysm.client.calls import processing, training
from raysm.client.calls.parts import Call
from raysm.contract.job_api import PROCESSING, TRAINING, JobApi

__all__ = ["Call", "call_of"]

CALLS: Mapping[str, Call] = {TRAINING.kind: training.CALL, PROCESSING.kind: processing.CALL}


def call_of(api: JobApi) -> Call:
    """Return how ``api`` is called."""
    return CALLS[api.kind]
