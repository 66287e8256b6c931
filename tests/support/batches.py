"""Batch inference on the one small Ray of the tests: packed as a client would, and run as the driver does."""

import shutil

from raysm.client.source.package import package_of
from raysm.contract import payload
from raysm.contract.paths import Paths
from raysm.request import Input, JobRequest
from raysm.workloads.batch.run import run_batch
from tests.support.payloads import pack_payload


def pack(batch, base, channel="data", distribution="FullyReplicated"):
    """Pack a ``raysm.Batch`` as the payload below ``base``; return its workload as the head reads it."""
    paths, package = Paths(base), package_of(batch)
    shutil.rmtree(paths.payload, ignore_errors=True)
    inputs = {channel: Input("/data", distribution=distribution)}
    request = JobRequest(name="batch", workload=package.workload, inputs=inputs)
    pack_payload(request, paths.payload, source=package.source, function=package.pickled)
    return payload.load(paths.payload).request.workload


def run(batch, base, result, *, records=None, channel="data", distribution="FullyReplicated"):
    """Run a ``raysm.Batch`` over the files below ``base``'s channel; return what came of it, and the events."""
    workload, events = pack(batch, base, channel, distribution), []
    pickled = Paths(base).payload / payload.FUNCTION
    return run_batch(workload, channel, pickled, events.append, result=result, records=records), events
