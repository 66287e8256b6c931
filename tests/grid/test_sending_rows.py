"""From an attempt to its job: the same whenever it is prepared, with what its row says."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from raysm.grid.attempt import Attempt
from raysm.grid.filling import Template
from raysm.grid.gauge import definition
from raysm.grid.rules import Rules
from raysm.grid.sending_rows import preparing, secret_of
from raysm.grid.store import Store
from raysm.grid.task import Task
from raysm.request import MetricDefinition, Script
from tests.support.sagemaker import REGION, aws, fake_aws


@pytest.fixture
def fake():
    with fake_aws() as fake:
        yield fake


@pytest.fixture
def grid(tmp_path):
    store = Store(tmp_path / "grid.db")
    yield store.make("drives", rules=Rules(), now=0.0)
    store.database.close()


def attempt(number=1, **changes):
    fields = {
        "task": "a", "number": number, "name": f"drives-abcdef-01234567-a{number}", "region": REGION,
        "instance_type": "ml.m5.large", "count": 2, "max_runtime_s": 77,
    }  # fmt: skip
    return Attempt(**fields | changes)


def maker(fake, grid, tmp_path, *args, services=None, **options):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    template = Template(workload=Script(str(script), args=args), target=aws(), options=options)
    return preparing(template, grid, "secret", services or (lambda target: fake.service))


def test_a_row_is_in_its_call_with_its_place_and_its_limit(fake, grid, tmp_path):
    make = maker(fake, grid, tmp_path, "--lr", "{lr}")
    call = make(Task(key="a", parameters={"lr": 0.1, "depth": 3}), attempt()).plan.request
    assert call["TrainingJobName"] == "drives-abcdef-01234567-a1"
    assert call["ResourceConfig"]["InstanceType"] == "ml.m5.large"
    assert call["ResourceConfig"]["InstanceCount"] == 2
    assert call["StoppingCondition"]["MaxRuntimeInSeconds"] == 77
    assert call["HyperParameters"]["depth"] == "3"


def test_a_row_for_which_the_service_may_choose_a_type_names_all_of_them_in_one_call(fake, grid, tmp_path):
    chosen = attempt(choice='{"ml.m5.large": 1.0, "ml.c5.large": 2.0}')
    call = maker(fake, grid, tmp_path)(Task(key="a"), chosen).plan.request
    assert call["ResourceConfig"]["InstancePreferences"] == [
        {"InstanceType": "ml.m5.large"},
        {"InstanceType": "ml.c5.large"},
    ]
    assert call["ResourceConfig"]["InstanceCount"] == 2
    assert "InstanceType" not in call["ResourceConfig"]


def test_the_same_attempt_is_the_same_job_whenever_it_is_prepared(fake, grid, tmp_path):
    make = maker(fake, grid, tmp_path)
    first, again = (make(Task(key="a"), attempt()) for _ in range(2))
    assert first.plan.request == again.plan.request
    assert first.contents.digests == again.contents.digests


def test_a_further_try_of_a_row_has_its_state_and_another_row_has_not(fake, grid, tmp_path):
    make = maker(fake, grid, tmp_path)
    first, second = (make(Task(key="a"), attempt(number)).request.checkpoint_uri for number in (1, 2))
    assert first == second
    assert make(Task(key="b"), attempt()).request.checkpoint_uri != first
    own = make(Task(key="a", checkpoint="s3://own/state"), attempt())
    assert own.request.checkpoint_uri == "s3://own/state"


def test_a_row_with_an_image_of_its_own_is_sent_by_a_target_that_has_it(fake, grid, tmp_path):
    asked = []
    make = maker(fake, grid, tmp_path, services=lambda target: asked.append(target.image) or fake.service)
    make(Task(key="a", image="acme/own:1"), attempt())
    assert asked[-1] == "acme/own:1"


def test_the_secret_of_a_grid_lies_beside_its_file_for_its_owner_alone_and_stays(tmp_path):
    secret = secret_of(tmp_path / "grid.db")
    assert len(secret) == 64
    assert secret_of(tmp_path / "grid.db") == secret
    assert stat.S_IMODE((tmp_path / "grid.key").stat().st_mode) == 0o600
    assert secret_of(tmp_path / "other.db") != secret


def test_runs_of_a_grid_that_begin_at_once_have_one_secret(tmp_path):
    for number in range(3):
        store, begins = tmp_path / f"{number}.db", threading.Barrier(4)

        def draw(store=store, begins=begins):
            begins.wait(60)
            return secret_of(store)

        with ThreadPoolExecutor(4) as pool:
            assert len({future.result() for future in [pool.submit(draw) for _ in range(4)]}) == 1


def test_a_job_of_a_grid_that_measures_lets_the_service_find_the_metric_and_a_users_own_counts(fake, grid, tmp_path):
    measured = replace(grid, rules=Rules(rate="images_per_s"))

    def definitions(**options):
        call = maker(fake, measured, tmp_path, **options)(Task(key="a"), attempt()).plan.request
        return {each["Name"]: each["Regex"] for each in call["AlgorithmSpecification"]["MetricDefinitions"]}

    assert definitions() == {"images_per_s": definition("images_per_s").regex}
    own = MetricDefinition(name="images_per_s", regex="speed=([0-9.]+)")
    assert definitions(metrics=(own,)) == {"images_per_s": own.regex}
