"""From rows that share a job to the job: what is the job's, what each row's, and what cannot be shared."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.filling import Template
from raysm.grid.filling_packs import check_packs, packed_job
from raysm.grid.packing import together
from raysm.grid.place import Place
from raysm.grid.rules import Rules
from raysm.grid.task import MAX_RUNTIME_S, Task
from raysm.request import Input, Local, Script, TorchScript
from tests.support.sagemaker import REGION, aws

PLACE = Place(region=REGION, instance_type="ml.m5.large")
PACK = Rules(pack=10, row_cpus=2.0, row_gpus=0.5)


def template(*args, workload=None, **options):
    return Template(workload=workload or Script("train.py", args=args), target=aws(), options=options)


def job(made, *tasks):
    return packed_job(made, together(tasks), PLACE, 1, PACK)


def test_each_row_has_its_arguments_and_the_job_what_all_have_alike():
    made = template(
        "--lr", "{lr}", hyperparameters={"epochs": "3", "name": "n-{key}"}, environment={"MODE": "{mode}", "LANG": "C"}
    )
    tasks = [
        Task(key=key, parameters={"lr": lr, "mode": "fast", "depth": depth}, environment={"OWN": key}, max_runtime_s=60)
        for key, lr, depth in (("a", 0.1, 2), ("b", 0.2, 2))
    ]
    filled = job(made, *tasks)
    rows = filled.workload.rows
    assert [(row.key, row.name, row.args) for row in rows] == [
        (task.key, task.key_hash, ("--lr", str(task.parameters["lr"]))) for task in tasks
    ]
    assert filled.options["hyperparameters"] == {"epochs": "3", "depth": "2"}
    assert [row.hyperparameters for row in rows] == [{"name": "n-a"}, {"name": "n-b"}]
    assert filled.options["environment"] == {"MODE": "fast", "LANG": "C"}
    assert [row.environment for row in rows] == [{"OWN": "a"}, {"OWN": "b"}]
    assert [row.max_runtime_s for row in rows] == [60, 60]
    assert (filled.workload.cpus, filled.workload.gpus) == (2.0, 0.5)


def test_a_row_without_a_limit_has_the_one_that_the_budget_counts_with():
    (row,) = job(template(), Task(key="a")).workload.rows
    assert row.max_runtime_s == MAX_RUNTIME_S


def test_the_inputs_of_the_rows_are_those_of_the_job():
    tasks = [Task(key=key, inputs={"data": "s3://b/x"}) for key in "ab"]
    assert job(template(), *tasks).options["inputs"] == {"data": "s3://b/x"}


def refusal(made, *tasks, rules=PACK):
    with pytest.raises(InvalidRequest) as refused:
        check_packs(made, tasks or [Task(key="a")], rules)
    return str(refused.value)


def test_what_cannot_share_a_job_is_refused_with_what_to_do():
    assert "programs of one process" in refusal(template(workload=TorchScript("train.py")))
    assert "programs of one process" in refusal(template(workload=Script("train.py", ray_init=True)))
    text = refusal(template(inputs={"data": Input("s3://b/{campaign}")}))
    assert "{campaign} stands in an option that a job has once" in text
    assert "--data {campaign}" in text
    assert "{key}" in refusal(template(checkpoint_uri="s3://b/{key}"))
    assert "{name}" in refusal(template(workload=Script("{name}.py")))
    assert "row 1 (a), column 'checkpoint'" in refusal(template(), Task(key="a", checkpoint="s3://b/x"))
    assert "the column expected_s" in refusal(template(), rules=Rules(pack_minutes=10))


def test_rows_of_instances_that_run_nothing_have_jobs_of_their_own():
    made = Template(workload=Script("train.py"), target=Local(instance_kind="simulated"), options={})
    assert "these instances run none" in refusal(made)
    check_packs(made, [Task(key="a")], Rules())


def test_what_is_the_same_for_all_rows_of_a_job_may_stand_anywhere():
    made = template("{key}", inputs={"data": Input("s3://b/{region}/{instance_type}")}, environment={"KEY": "{key}"})
    check_packs(made, [Task(key="a")], PACK)
    check_packs(template(checkpoint_uri="s3://b/{key}"), [Task(key="a")], Rules())
