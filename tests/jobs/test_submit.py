"""The whole way of a job: submit, plan, payload, service, embedded server, instances, result."""

import hashlib
import http.client
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np
import pandas as pd
import pytest

import raysm
from raysm.core.client.targets.local import find_server
from raysm.features.similarity.cluster.tiling import SIZES
from tests.support import reference
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("home")

COUNT_RUNS = """
import os, pathlib, ray
ray.init(log_to_driver=False)
@ray.remote(num_cpus=0)
def count():
    path = pathlib.Path(os.environ["RAYSM_STATE"]) / "runs"
    runs = 1 + (int(path.read_text()) if path.exists() else 0)
    path.write_text(str(runs))
    return runs
for host in ("algo-1", "algo-2"):
    print(host, "ran", ray.get(count.options(label_selector={"raysm.io/host": host}).remote()), "times", flush=True)
"""


def post(home, path):
    connection = http.client.HTTPConnection("127.0.0.1", find_server(home).port, timeout=120)
    connection.request("POST", path, headers={"X-Raysm": "1"})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert answer.status == 200, body
    return body


# How each becomes a file is shown without a job in client/test_inputs.
@pytest.mark.long
def test_a_matrix_in_memory_gives_the_result_of_the_same_rows_in_a_file(tmp_path):
    rows = np.random.default_rng(3).standard_normal((50, 4))
    np.save(tmp_path / "m.npy", rows)
    matrices = (tmp_path / "m.npy", pd.DataFrame(rows, columns=list("abcd")))
    jobs = [raysm.submit(raysm.Similarity(top_k=3), inputs={"matrix": one}) for one in matrices]
    from_file, from_memory = (job.result(timeout=300).file for job in jobs)
    assert from_file.read_bytes() == from_memory.read_bytes()
    assert any("matrix: 50 rows x 4 columns" in line.text for line in jobs[1].lines())


@pytest.mark.long
def test_the_state_of_each_instance_survives_into_the_run_that_resumes(tmp_path):
    (tmp_path / "s.py").write_text(COUNT_RUNS)
    for run in (1, 2):
        job = raysm.submit(
            raysm.Script(str(tmp_path / "s.py")),
            name="counts",
            cluster=raysm.Cluster(count=2),
            resume=run == 2,
        )
        job.wait(timeout=300)
        said = {line.text for line in job.lines()}
        assert {f"algo-1 ran {run} times", f"algo-2 ran {run} times"} <= said


def is_whole(record):
    """Whether a finished block's file was not torn while it was written: its first line has the digest of the rest."""
    line, _, content = record.read_bytes().partition(b"\n")
    return hashlib.sha256(content).hexdigest().encode() in line


@pytest.mark.long
def test_a_spot_interruption_in_the_middle_computes_no_finished_block_twice(tmp_path, home):
    rows = np.random.default_rng(3).standard_normal((36_000, 256), dtype=np.float32)
    np.save(tmp_path / "m.npy", rows)
    job = raysm.submit(
        raysm.Similarity(top_k=5, block_rows=1000),
        cluster=raysm.Cluster(count=2),
        inputs={"matrix": tmp_path / "m.npy"},
        limits=raysm.Limits(spot=True),
    )
    state = Path(url2pathname(urlsplit(job.describe().answer["CheckpointConfig"]["S3Uri"]).path))

    def kept():
        files = [path for path in state.rglob("*") if path.is_file() and "similarity" in str(path)]
        return [path for path in files if path.name != SIZES]

    # The first ones: all are done in seconds, in which a test on a full machine may not look twice.
    until(lambda: len(kept()) >= 4)
    post(home, f"/raysm/jobs/{job.name}/interrupt")
    until(lambda: "Interrupted" in [status for status, _, _ in job.describe().transitions])
    finished = len([path for path in kept() if is_whole(path)])
    result = job.result(timeout=300)
    assert [status for status, _, _ in job.describe().transitions].count("Training") == 2
    measures = result.manifest.measures
    # Pairs of 36 blocks of rows, each with itself and with the others.
    assert measures["blocks"] == 666
    assert finished <= measures["blocks_found"] < 666
    print(f"{finished} of 666 tiles were kept, {measures['blocks_found']:.0f} were found again")
    at = [0, 9_999, 35_999]
    indices, scores = reference.neighbors(rows.astype(np.float64), 5, at)
    table = result.table()
    assert np.stack(table["neighbors"].to_numpy())[at].tolist() == indices.tolist()
    assert np.stack(table["similarities"].to_numpy())[at].tolist() == scores.tolist()
