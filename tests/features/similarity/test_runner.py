"""The similarity as the driver runs it, on a cluster that is there."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet

from raysm.core.protocol.events import Progress, parse
from raysm.core.protocol.names import FAILURE_RECORD
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.result import Manifest
from raysm.core.request import Input, JobRequest
from raysm.features.similarity.request import Similarity
from tests.support.driving import drive, refusal_without
from tests.support.payloads import pack_payload
from tests.support.reference import neighbors


def test_an_image_without_numpy_says_so_and_names_the_extra():
    assert refusal_without("numpy", Similarity(top_k=1)) == (
        "the image lacks numpy, which the similarity needs; add raysm's extra: python3 -m pip install 'raysm[local]'"
    )


def test_ray_imports_no_pydantic_in_a_process_of_a_similarity_which_can_itself():
    code = """
import importlib, sys
importlib.import_module(sys.argv[1])
import ray._common.pydantic_compat
before = "pydantic" in sys.modules
import pydantic
print(before, pydantic.BaseModel.__name__)
"""
    command = [sys.executable, "-c", code, *Similarity.preloads]
    assert (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        == "False BaseModel\n"
    )


def pack_similarity(base: Path, rows, **workload):
    paths = Paths(base)
    paths.channel("matrix").mkdir(parents=True)
    np.save(paths.channel("matrix") / "rows.npy", rows)
    request = JobRequest(
        name="digits", workload=Similarity(**workload), inputs={"matrix": Input("/data")}
    )
    pack_payload(request, paths.payload)
    return paths


def test_a_terminated_similarity_goes_on_where_it_stopped(address, base, tmp_path):
    rows = np.random.default_rng(0).standard_normal((3000, 512)).astype(np.float32)
    paths = pack_similarity(base, rows, top_k=3, block_rows=150)
    paths.checkpoints.mkdir()
    command = [sys.executable, "-m", "raysm.instance.work.driver"]
    record = tmp_path / "failure.json"
    with subprocess.Popen(
        command,
        env=os.environ | {FAILURE_RECORD: str(record)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        for line in driver.stdout:
            event = parse(line)
            if isinstance(event, Progress) and event.phase == "similarity" and event.done:
                break
        driver.terminate()
        _, errors = driver.communicate(timeout=90)
    assert driver.returncode == 143, errors
    assert not record.exists()
    finished = [
        file for file in (paths.checkpoints / "raysm" / "similarity").rglob("*") if file.is_file()
    ]
    assert 1 <= len(finished) < 200
    done, _ = drive(paths, tmp_path)
    assert done.returncode == 0, done.stderr
    events = [
        event for event in map(parse, done.stdout.splitlines()) if isinstance(event, Progress)
    ]
    assert events[-1].done == 3000
    assert sorted(file.name for file in paths.model.iterdir()) == [
        "manifest.json",
        "neighbors.parquet",
    ]
    assert Manifest.read(paths.model).job == "digits"
    table = pyarrow.parquet.read_table(paths.model / "neighbors.parquet")
    some = range(0, 3000, 300)
    assert table["neighbors"].take(list(some)).to_pylist() == neighbors(rows, 3, some)[0].tolist()


def test_bad_rows_are_exit_code_two_and_leave_no_result(address, base, tmp_path):
    rows = np.ones((50, 5))
    rows[33, 2] = np.nan
    paths = pack_similarity(base, rows, top_k=3)
    done, failure = drive(paths, tmp_path)
    assert done.returncode == failure.exit_code == 2
    assert failure.reason() == (
        "InvalidInput: row 33 of the matrix (counted from 0) holds NaN or infinity, the first such row; replace it"
    )
    assert not paths.model.exists() or list(paths.model.iterdir()) == []
