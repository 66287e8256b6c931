"""The same job under other layouts than that of a plain training job."""

import json

import pytest

import raysm

pytestmark = pytest.mark.usefixtures("home")

WHO_AM_I = """
import json, os, ray
ray.init(log_to_driver=False)
ranks = {node["Labels"]["raysm.io/host"]: int(node["Labels"]["raysm.io/rank"]) for node in ray.nodes()}
said = {"host": os.environ["SM_CURRENT_HOST"], "ranks": ranks}
with open(os.environ["SM_MODEL_DIR"] + "/said.json", "w") as file:
    json.dump(said, file)
"""


def test_a_processing_job_finds_its_files_and_leaves_its_result_where_processing_has_them(tmp_path):
    (tmp_path / "script.py").write_text(WHO_AM_I)
    script = raysm.Script(str(tmp_path / "script.py"))
    job = raysm.submit(script, kind="processing", cluster=raysm.Cluster(count=1))
    said = json.loads((job.result(timeout=300) / "said.json").read_text())
    assert said == {"host": "algo-1", "ranks": {"algo-1": 0}}
