"""A real MLflow behind a tracking server: where it listens, and that it ends."""

import contextlib
import json
import os
import stat
import sys

import psutil
import pytest

from raysm.errors import RaysmError
from raysm.local.server.mlflow.process import MlflowProcess

pytest.importorskip("mlflow")
pytest.importorskip("sqlalchemy")

pytestmark = pytest.mark.long


def asked(process, method, path, body=None):
    with contextlib.closing(process.connect()) as connection:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def test_it_listens_where_no_other_user_comes_keeps_its_runs_in_its_folder_and_ends(tmp_path):
    process = MlflowProcess(tmp_path, "s3://bucket/runs")
    place = process._socket.parent
    family = psutil.Process(process._instance.pid).children(recursive=True)
    try:
        assert (stat.S_IMODE(place.stat().st_mode), place.stat().st_uid) == (0o700, os.getuid())
        assert [one for child in family for one in child.net_connections("inet")] == []
        status, made = asked(process, "POST", "/api/2.0/mlflow/experiments/create", {"name": "digits"})
        assert (status, made["experiment_id"]) == (200, "1")
        _, told = asked(process, "GET", "/api/2.0/mlflow/experiments/get?experiment_id=1")
        assert told["experiment"]["artifact_location"] == "s3://bucket/runs/1"
        assert (tmp_path / "mlflow.db").stat().st_size > 0
    finally:
        process.close()
    assert not process.is_alive
    assert not any(child.is_running() for child in family)
    assert not place.exists()


def test_one_that_does_not_come_up_is_told_with_the_end_of_its_log(tmp_path):
    command = (sys.executable, "-c", "raise SystemExit('no room')")
    with pytest.raises(RaysmError, match="MLflow did not start; its log .*log ends so:\nno room"):
        MlflowProcess(tmp_path, "s3://bucket/runs", command)
