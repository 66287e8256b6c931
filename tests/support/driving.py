"""The driver as the bootstrap runs it, on a payload that a test has packed."""

import os
import subprocess
import sys
from types import SimpleNamespace

from raysm.core.protocol import payload
from raysm.core.protocol.names import BASE_DIR, FAILURE_RECORD
from raysm.core.protocol.result import Failure
from raysm.core.request import JobRequest
from raysm.features.script.request import Script
from raysm.instance.children import Commands
from tests.support.payloads import pack_payload

LOAD_WITHOUT = """
import sys
from types import SimpleNamespace
sys.modules[{module!r}] = None
from raysm.errors import MissingDependency
from {home} import {kind}
from raysm.instance.work.runner import load_runner
try:
    load_runner(SimpleNamespace(request=SimpleNamespace(workload={workload!r})), None)
except MissingDependency as error:
    print(error)
"""


def pack_script(paths, tmp_path, text, *args):
    script = tmp_path / "train.py"
    script.write_text(text)
    pack_payload(JobRequest(name="job", workload=Script(str(script), args=args)), paths.payload)


def drive(paths, tmp_path, **variables):
    """Run the driver as the bootstrap does; return the finished process and the failure it recorded."""
    record = tmp_path / "failure.json"
    done = subprocess.run(
        Commands().driver,
        cwd=paths.payload / payload.SOURCE,
        env=os.environ | {BASE_DIR: str(paths.base), FAILURE_RECORD: str(record)} | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, Failure.read(record) if record.exists() else None


def payload_of(workload):
    """Return as much of a payload as a runner needs to be made."""
    return SimpleNamespace(request=SimpleNamespace(workload=workload))


def refusal_without(module, workload):
    """Return what is said where an image lacks ``module``, when the runner of ``workload`` is loaded."""
    kind = type(workload)
    code = LOAD_WITHOUT.format(
        module=module, workload=workload, kind=kind.__name__, home=kind.__module__
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout.strip()
