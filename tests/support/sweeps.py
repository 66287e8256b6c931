"""Sweeps on the one small Ray of the tests: a payload is packed as a client would, and run as the driver does."""

import shutil

from raysm.core.client.source.package import package_of
from raysm.core.protocol import payload
from raysm.core.protocol.paths import Paths
from raysm.core.request import JobRequest
from raysm.features.sweep.cluster.run import run_sweep
from raysm.features.sweep.cluster.study import Study, drawing_by
from raysm.instance.work.failure import unpickled
from raysm.instance.work.nodes import cluster_nodes
from tests.support.payloads import pack_payload


def pack(sweep, base):
    """Pack a ``raysm.Sweep`` as the payload below ``base``; return its workload as the head reads it."""
    paths, package = Paths(base), package_of(sweep)
    shutil.rmtree(paths.payload, ignore_errors=True)
    request = JobRequest(name="sweep", workload=package.workload)
    pack_payload(request, paths.payload, source=package.source, function=package.pickled)
    return payload.load(paths.payload).request.workload


def run(sweep, base, root, events=None):
    """Run a ``raysm.Sweep``; return what it found, its workload and the events."""
    workload = pack(sweep, base)
    draw = None
    if workload.draws_itself:
        _, (function,), _ = unpickled(Paths(base).payload / payload.FUNCTION, workload.title)
        draw = drawing_by(function, workload.title)
    told = [] if events is None else events
    outcome = run_sweep(workload, Study(workload, draw, root), cluster_nodes(), told.append)
    return outcome, workload, told
