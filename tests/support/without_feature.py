"""What a raysm without one of its features can do: run by its path, it prints JSON.

``python without_feature.py FEATURE FOLDER``: ``FOLDER`` is a folder for the test's own files.
"""

import json
import sys
from pathlib import Path

import numpy as np

import raysm
from raysm.cli.arguments import build_parser
from raysm.core.request import Workload

NEEDS = {
    "dashboard": {
        "job.dashboard()": lambda job: job.dashboard(),
        "job.tunnel(8265)": lambda job: job.tunnel(8265),
    },
    "experiments": {
        "job.plot()": lambda job: job.plot(),
        "job.watch()": lambda job: job.watch(),
        "tracking": lambda job: raysm.submit(
            raysm.Script(__file__), on=job.service, tracking="runs"
        ),
    },
    "grid": {"raysm.jobs(grid=…)": lambda job: raysm.jobs(job.service, grid="drives")},
    "script": {
        "a function": lambda job: raysm.client.submit.prepare(print, on=job.service),
        "a path": lambda job: raysm.Grid("script.py", rows=[{"key": "a"}], on=job.service),
    },
    "training": {
        "raysm.training": lambda job: raysm.training,
        "raysm.sdk.Ray": lambda job: raysm.sdk.Ray,
        "workers of trials": lambda job: raysm.Sweep(
            lambda lr: lr, space={"lr": raysm.choice([1, 2])}, metric="m", mode="min", workers=2
        ),
    },
}
"""What needs a feature, with a sentence that says so where the feature is not there."""

KINDS = {
    "batch": ["batch"],
    "script": ["script", "function"],
    "session": ["session"],
    "similarity": ["similarity"],
    "sweep": ["script_sweep", "function_sweep"],
    "training": ["torch_script", "data_parallel"],
}


def asked(what, *args):
    """Return the class of the error that ``what`` raises, and its text; None if it raises none."""
    try:
        what(*args)
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def job_of_another(feature, folder):
    """Submit a job of another feature to a fake service; return its handle."""
    (folder / "script.py").write_text("pass\n")
    np.save(folder / "m.npy", np.eye(4, dtype=np.float32))
    fake = raysm.testing.FakeSageMaker(folder / "home")
    if feature == "script":
        return raysm.submit(
            raysm.Similarity(top_k=1), inputs={"matrix": str(folder / "m.npy")}, on=fake
        )
    return raysm.submit(raysm.Script(str(folder / "script.py")), on=fake)


def main(feature, folder):
    job = job_of_another(feature, folder)
    answers = {
        "place": raysm.__file__,
        "names": {name: asked(getattr, raysm, name) for name in raysm.__all__},
        "commands": list(build_parser().commands),
        "help": build_parser().format_help(),
        "status": str(job.wait()),
        "kinds": {kind: asked(Workload.named, kind) for kind in KINDS.get(feature, ())},
        "needs": {name: asked(what, job) for name, what in NEEDS.get(feature, {}).items()},
    }
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
