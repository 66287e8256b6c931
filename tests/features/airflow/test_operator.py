"""Jobs as tasks of a real Airflow, by ``dag.test()``, on an embedded SageMaker.

The environment of the other tests lacks Airflow; ``python3 -m tests.extras airflow`` runs these in one of its own.
"""

import asyncio
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

import raysm
from tests.support.homes import serving
from tests.support.pages import DOCS, assert_printed, outputs, run_page

# Not imported here: Airflow reads its configuration at import, and the fixture writes that.
if importlib.util.find_spec("airflow") is None:
    pytest.skip("the extra airflow is not installed", allow_module_level=True)

LIMIT_S = 120


@pytest.fixture(scope="session")
def dags(tmp_path_factory, raysm_local):
    """The DAGs of dags.py by name, in a folder of Airflow's that has an empty database."""
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    shutil.copy(Path(__file__).with_name("dags.py"), home / "dags" / "jobs.py")
    (home / "dags" / "all_of_them.py").write_text(
        f"import pathlib, jobs\nglobals().update(jobs.dags(pathlib.Path({str(home)!r})))\n"
        "# airflow DAG\n"
    )
    os.environ["AIRFLOW_HOME"] = str(home)
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    sys.path.insert(0, str(home / "dags"))
    command = [Path(sys.executable).with_name("airflow"), "db", "migrate"]
    subprocess.run(command, check=True, capture_output=True, timeout=LIMIT_S)
    path = home / "dags" / "all_of_them.py"
    spec = importlib.util.spec_from_file_location("all_of_them", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def run(dag, **options):
    """Run a DAG of one task; return the states of the task's instances, and their XComs."""
    done = dag.test(**options)
    instances = sorted(done.get_task_instances(), key=lambda ti: ti.map_index)
    return (
        [str(ti.state) for ti in instances],
        [ti.xcom_pull("task", map_indexes=ti.map_index) for ti in instances],
    )


def of_task(name):
    """Return the jobs of the task of a DAG, the first one first."""
    return [raysm.attach(job.name) for job in reversed(raysm.jobs(task=f"{name}-task"))]


def context(run_id, **of_try):
    """Return what Airflow gives to an operator, for tries that dag.test() does not make."""
    pushed = {}
    ti = {
        "dag_id": "by_hand",
        "task_id": "task",
        "run_id": run_id,
        "map_index": -1,
        "try_number": 1,
        "max_tries": 0,
        "xcom_push": lambda key, value: pushed.update({key: value}),
    }
    run_after = datetime(2026, 11, 30, tzinfo=UTC)
    return {
        "ti": SimpleNamespace(**ti | of_try),
        "dag_run": SimpleNamespace(run_after=run_after),
        "pushed": pushed,
    }


def deferred(operator, context):
    """Execute an operator until it defers; return its trigger, as the triggerer gets it."""
    from airflow.sdk.exceptions import TaskDeferred

    with pytest.raises(TaskDeferred) as deferral:
        operator.execute(context)
    path, kwargs = deferral.value.trigger.serialize()
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)(**kwargs)


def script():
    """Return a script that prints its arguments."""
    import jobs

    return jobs.says(Path(jobs.__file__).parent)


def simulated(**more):
    """Return an operator whose job runs until it is stopped."""
    import jobs

    from raysm.features.airflow import RaysmOperator

    return RaysmOperator(task_id="task", workload=script(), on=jobs.SIMULATED, **more)


def attached(trigger):
    return raysm.attach(trigger.job)


def test_a_task_runs_a_job_with_its_rendered_arguments_and_leaves_its_outputs_in_xcom(dags, capfd):
    states, (found,) = run(dags["plain"])
    assert states == ["success"]
    job = raysm.attach(found["job"])
    said = Path(found["model"].removeprefix("file://"), "said.txt")
    assert said.read_text() == "of plain"
    assert found["data"] == f"{job.outputs}/data"
    # The log of the job is in that of the task.
    assert 'algo-1 | of plain {"run": "manual"}' in capfd.readouterr().out


def test_a_task_fails_with_the_reason_of_its_job_and_a_retry_sends_a_new_one(dags, capfd):
    states, _ = run(dags["fails"])
    assert states == ["failed"]
    first, second = of_task("fails")
    assert (first.status, second.status) == ("Failed", "Failed")
    out = capfd.readouterr().out
    assert (
        f"AirflowException: the job {second.name} failed: ValueError: no rows for this day" in out
    )


def test_a_retry_takes_the_job_of_a_try_that_died_before_anything_was_stored(dags):
    states, (found,) = run(dags["dies"])
    assert states == ["success"]
    assert [job.name for job in of_task("dies")] == [found["job"]]


def test_a_retry_takes_a_job_whose_completion_was_not_stored(dags):
    states, (found,) = run(dags["loses"])
    assert states == ["success"]
    assert [job.name for job in of_task("loses")] == [found["job"]]


def test_a_cleared_task_sends_a_new_job_after_one_that_completed(dags):
    from raysm.features.airflow import RaysmOperator

    operator = RaysmOperator(task_id="task", workload=script())
    first = attached(deferred(operator, context("cleared")))
    assert first.wait(LIMIT_S) == "Completed"
    # Airflow makes max_tries larger by the tries before the clear.
    second = attached(deferred(operator, context("cleared", try_number=2, max_tries=1)))
    assert second.name != first.name
    second.stop(LIMIT_S)


def test_two_tries_at_once_start_one_job(dags):
    from raysm.features.airflow import RaysmOperator

    found = []

    def execute():
        operator = RaysmOperator(task_id="task", workload=script())
        found.append(deferred(operator, context("twice")).job)

    threads = [threading.Thread(target=execute) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(found) == 2
    (name,) = set(found)
    # Neither has replaced the payload of the other one's job.
    assert raysm.attach(name).wait(LIMIT_S) == "Completed"


def test_map_indexes_have_jobs_of_their_own(dags):
    states, found = run(dags["mapped"])
    assert states == ["success", "success"]
    texts = [Path(one["model"].removeprefix("file://"), "said.txt").read_text() for one in found]
    assert texts == ["first", "second"]


def test_a_job_that_a_user_stops_is_not_sent_again_by_a_retry(dags):
    def stop():
        deadline_s = time.monotonic() + LIMIT_S
        while not (found := of_task("stopped")) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        found[0].stop(LIMIT_S)

    thread = threading.Thread(target=stop)
    thread.start()
    states, _ = run(dags["stopped"])
    thread.join(LIMIT_S)
    assert states == ["failed"]
    assert [job.status for job in of_task("stopped")] == ["Stopped"]


def test_a_user_who_ends_a_deferred_task_stops_its_job(dags):
    trigger = deferred(simulated(), context("killed"))

    async def kill():
        task = asyncio.create_task(anext(trigger.run()))
        await asyncio.sleep(1)
        task.cancel("user-action")
        await trigger.on_kill()

    asyncio.run(kill())
    assert attached(trigger).wait(LIMIT_S) == "Stopped"


def test_a_task_that_ends_on_its_worker_stops_its_job(dags):
    operator = simulated()
    trigger = deferred(operator, context("killed on a worker"))
    operator.on_kill()
    assert attached(trigger).wait(LIMIT_S) == "Stopped"


def test_a_task_that_ended_while_its_job_was_sent_stops_the_job(dags):
    from airflow.sdk.exceptions import AirflowException

    operator = simulated()
    operator.on_kill()
    with pytest.raises(AirflowException, match="by-hand-task-") as raised:
        operator.execute(context("killed early"))
    (name,) = [word for word in str(raised.value).split() if word.startswith("by-hand-task-")]
    assert raysm.attach(name).wait(LIMIT_S) == "Stopped"


def test_the_end_of_execution_timeout_stops_the_job(dags):
    from airflow.sdk.exceptions import TaskDeferralTimeout

    operator = simulated()
    trigger = deferred(operator, context("late"))
    with pytest.raises(TaskDeferralTimeout):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, context("late"))
    assert attached(trigger).wait(LIMIT_S) == "Stopped"


def test_a_retry_waits_for_the_end_of_a_job_that_is_stopping_and_sends_a_new_one(dags):
    first = attached(deferred(simulated(), context("stopping", max_tries=1)))
    first.cancel()
    second = attached(deferred(simulated(), context("stopping", try_number=2, max_tries=1)))
    assert first.status == "Stopped"
    assert second.name != first.name
    second.stop(LIMIT_S)


def test_a_trigger_does_not_block_the_others_while_the_service_does_not_answer(dags, raysm_local):
    from raysm.core.protocol.home import ServerRecord

    trigger = deferred(simulated(), context("silent"))
    server = ServerRecord.read(Path(raysm_local.home)).pid

    async def count():
        task = asyncio.create_task(anext(trigger.run()))
        await asyncio.sleep(1)
        os.kill(server, signal.SIGSTOP)
        try:
            began_s = time.monotonic()
            for _ in range(20):
                await asyncio.sleep(0.1)
            return time.monotonic() - began_s
        finally:
            os.kill(server, signal.SIGCONT)
            task.cancel()

    assert asyncio.run(count()) < 10
    attached(trigger).stop(LIMIT_S)


def test_a_sensor_waits_for_a_job_and_does_not_stop_it(dags):
    import jobs

    from raysm.features.airflow import RaysmSensor

    job = raysm.submit(script())
    states, (found,) = run(dags["waits"], run_conf={"job": job.name})
    assert (states, found["job"]) == (["success"], job.name)
    endless = raysm.submit(script(), on=jobs.SIMULATED)
    trigger = deferred(RaysmSensor(task_id="task", job=endless.name), context("sensor"))
    asyncio.run(trigger.on_kill())
    assert endless.running()
    endless.stop(LIMIT_S)


def test_a_soft_sensor_skips_its_task_if_the_job_fails(dags):
    import jobs

    job = raysm.submit(raysm.Function(jobs.fails))
    states, _ = run(dags["waits_softly"], run_conf={"job": job.name})
    assert states == ["skipped"]


@pytest.mark.parametrize("name", ["if_done", "resume", "regions"])
def test_an_option_that_a_try_cannot_keep_is_refused_before_a_job_is_sent(dags, name):
    operator = simulated(options={name: True})
    with pytest.raises(raysm.RaysmError, match=name):
        operator.execute(context("refused"))


def test_the_page_about_airflow_runs_as_it_stands(tmp_path):
    with serving(tmp_path / "home") as home:
        printed = run_page(DOCS / "guides" / "airflow.md", tmp_path, home)
    assert_printed("\n".join(outputs("guides/airflow.md")), printed)
