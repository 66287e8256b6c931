"""What jobs on this machine need: packages, a server, and what each kind of instance wants of the system."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import replace

from raysm.client.doctor.case import Finding, bad, good
from raysm.client.targets import endpoint
from raysm.contract.home import home
from raysm.request.targets import INSTANCE_KINDS

__all__ = ["local_checks", "train_check"]

LOCAL_PACKAGES = ("ray", "pyarrow", "numpy", "moto")


def local_checks() -> Iterator[Finding]:
    """Look at what jobs on this machine need."""
    from raysm.local.instances import missing_for

    for name in LOCAL_PACKAGES:
        is_there = importlib.util.find_spec(name) is not None
        lacks = bad("not installed", "python3 -m pip install 'raysm[local]'")
        yield replace(good(importlib.metadata.version(name)) if is_there else lacks, name=name)
    yield train_check()
    record = endpoint.answering(home())
    yield replace(good(record.url if record else f"starts when needed (home {home()})"), name="server")
    for kind in INSTANCE_KINDS:
        missing = missing_for(kind)
        can = good(f"instances of kind {kind} can run")
        yield replace(can if missing is None else bad(missing, "", needed=False), name=kind)


def train_check(load: Callable[[], object] = lambda: importlib.import_module("ray.train")) -> Finding:
    """Check that Ray Train can be imported: it needs torch, pandas and others, which the extra ``train`` brings.

    Args:
        load: Imports it.
    """
    try:
        load()
    except ImportError as error:
        text = f"cannot be imported, trainings will fail: {error.__cause__ or error}"  # the cause names the package
        return replace(bad(text, "python3 -m pip install 'raysm[train]'", needed=False), name="ray.train")
    return replace(good("can be imported"), name="ray.train")
