"""The same job under other layouts than that of a plain training job."""

import json

from raysm.request import Cluster
from tests.support.jobs import completed, script_request

WHO_AM_I = """
import json, os, ray
ray.init(log_to_driver=False)
ranks = {node["Labels"]["raysm.io/host"]: int(node["Labels"]["raysm.io/rank"]) for node in ray.nodes()}
said = {"host": os.environ["SM_CURRENT_HOST"], "ranks": ranks}
with open(os.environ["SM_MODEL_DIR"] + "/said.json", "w") as file:
    json.dump(said, file)
"""


def test_a_processing_job_finds_its_files_and_leaves_its_result_where_processing_has_them(tmp_path):
    request = script_request(tmp_path, WHO_AM_I, cluster=Cluster(count=2))
    outcome, _, model = completed(request, tmp_path / "job", "process", config="processing")
    assert outcome.status == "Completed", outcome.failure_reason
    assert model == tmp_path / "job" / "algo-1" / "ml" / "processing" / "output" / "result"
    assert json.loads((model / "said.json").read_text()) == {"host": "algo-1", "ranks": {"algo-1": 0, "algo-2": 1}}


def test_a_processing_job_that_fails_says_why_in_its_exit_message(tmp_path):
    request = script_request(tmp_path, "raise KeyError('weights')", cluster=Cluster(count=1))
    outcome, _, _ = completed(request, tmp_path / "job", "process", config="processing")
    assert outcome.status == "Failed"
    assert (tmp_path / "job" / "algo-1" / "ml" / "output" / "message").read_text().startswith("KeyError: 'weights'")
    assert outcome.failure_reason.startswith("KeyError: 'weights'")
