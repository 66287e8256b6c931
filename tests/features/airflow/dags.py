"""The DAGs of the tests of Airflow: a copy of this file is in Airflow's folder of DAGs."""

from datetime import timedelta

from airflow.sdk import DAG

import raysm
from raysm.features.airflow import RaysmOperator, RaysmSensor

SAYS = """
import os, sys
print(*sys.argv[1:], os.environ["SM_HPS"], flush=True)
open(os.path.join(os.environ["SM_MODEL_DIR"], "said.txt"), "w").write(" ".join(sys.argv[1:]))
"""
SIMULATED = raysm.Local(instance_kind="simulated")
"""Its jobs run until they are stopped."""
AGAIN = {"retries": 1, "retry_delay": timedelta(0)}


class DiesOnce(RaysmOperator):
    """The first try is lost after the job was sent, before anything of it is stored."""

    def defer(self, **deferral):
        job = deferral["trigger"].job
        if job not in DiesOnce.jobs:
            DiesOnce.jobs.append(job)
            raise SystemError("the worker died")
        super().defer(**deferral)

    jobs = []


class LosesTheAnswerOnce(RaysmOperator):
    """The first try is lost after the job has completed."""

    jobs = []

    def execute_complete(self, context, event):
        if not self.jobs:
            self.jobs.append(event["job"])
            raise SystemError("the worker died")
        return super().execute_complete(context, event)


def says(folder):
    path = folder / "says.py"
    path.write_text(SAYS)
    return raysm.Script(str(path))


def fails():
    raise ValueError("no rows for this day")


def one(name, task, **more):
    """Return a DAG of one task."""
    with DAG(name) as dag:
        task(task_id="task", **more)
    return dag


def dags(folder):
    script = says(folder)
    found = [
        one(
            "plain",
            RaysmOperator,
            workload=script,
            args=["of", "{{ dag.dag_id }}"],
            hyperparameters={"run": "{{ run_id.split('_')[0] }}"},
        ),
        one("fails", RaysmOperator, workload=raysm.Function(fails), **AGAIN),
        one("dies", DiesOnce, workload=script, args=["once"], **AGAIN),
        one("loses", LosesTheAnswerOnce, workload=script, args=["once"], **AGAIN),
        one("stopped", RaysmOperator, workload=script, on=SIMULATED, **AGAIN),
        one("waits", RaysmSensor, job="{{ dag_run.conf['job'] }}"),
        one("waits_softly", RaysmSensor, job="{{ dag_run.conf['job'] }}", soft_fail=True),
    ]
    with DAG("mapped") as mapped:
        partial = RaysmOperator.partial(task_id="task", workload=script)
        partial.expand(args=[["first"], ["second"]])
    return {dag.dag_id: dag for dag in [*found, mapped]}
