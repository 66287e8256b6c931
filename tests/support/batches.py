"""Batch inference on the one small Ray of the tests: packed as a client would, and run as the driver does."""

import shutil
from unittest import mock

from raysm.core.client.source.package import package_of
from raysm.core.protocol import payload
from raysm.core.protocol.paths import Paths
from raysm.core.request import Input, JobRequest
from raysm.features.batch import runner
from raysm.features.batch.cluster import predict
from raysm.features.batch.runner import run_batch
from tests.support.payloads import pack_payload


def pack(batch, base, channel="data", distribution="FullyReplicated"):
    """Pack a ``raysm.Batch`` as the payload below ``base``; return its workload as the head reads it."""
    paths, package = Paths(base), package_of(batch)
    shutil.rmtree(paths.payload, ignore_errors=True)
    inputs = {channel: Input("/data", distribution=distribution)}
    request = JobRequest(name="batch", workload=package.workload, inputs=inputs)
    pack_payload(request, paths.payload, source=package.source, function=package.pickled)
    return payload.load(paths.payload).request.workload


def in_this_process(function, blocks, **options):
    """Stand in for ``map_blocks`` where no process has to start."""
    predict._made.clear()
    for block in blocks:
        yield block, function(block)


def run(
    batch, base, result, *, records=None, channel="data", distribution="FullyReplicated", here=False
):
    """Run a ``raysm.Batch`` over ``base``'s channel, ``here`` or in Ray; return the outcome and the events."""
    workload, events = pack(batch, base, channel, distribution), []
    pickled = Paths(base).payload / payload.FUNCTION
    with mock.patch.object(runner, "map_blocks", in_this_process if here else runner.map_blocks):
        return run_batch(
            workload, channel, pickled, events.append, result=result, records=records
        ), events
