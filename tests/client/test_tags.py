"""The tags by which a job is known again."""

from dataclasses import replace

from raysm.client.submit import job_tags
from raysm.request import JobRequest, Limits, PickledFunction, Script

SCRIPT = JobRequest(name="job", workload=Script("x.py"), project="p")


def test_every_job_names_its_project_its_task_and_its_kind_of_workload():
    assert job_tags(SCRIPT, "task") == {"raysm:project": "p", "raysm:task": "task", "raysm:workload": "script"}


def test_a_job_that_returns_a_value_names_the_python_that_can_read_it():
    request = JobRequest(name="job", workload=PickledFunction(name="f", python="3.9"))
    assert job_tags(request, "t")["raysm:python"] == "3.9"


def test_how_often_a_job_may_go_on_is_told_where_it_may():
    request = JobRequest(name="job", workload=Script("x.py"), limits=Limits(max_restarts=3))
    assert job_tags(request, "t")["raysm:max-restarts"] == "3"
    assert "raysm:max-restarts" not in job_tags(SCRIPT, "t")


def test_a_file_of_this_machine_in_which_metrics_are_copied_is_named_and_a_server_is_not():
    def tag(tracking):
        return job_tags(replace(SCRIPT, tracking=tracking), "t").get("raysm:tracking")

    assert tag("sqlite:////home/me/mlflow.db") == "sqlite:////home/me/mlflow.db"
    assert tag("http://mlflow.example:5000") is None
    assert tag(None) is None
