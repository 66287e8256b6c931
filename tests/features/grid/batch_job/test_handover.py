"""What a controller elsewhere is told: all of a grid but its record, so that it is the same grid there."""

import json
import re
import shutil

import pytest

from raysm.core.client.source.package import package_of
from raysm.core.request import AWS, Input, Limits, Security
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.features.grid.batch_job.handover import (
    NOT_ALL_DONE,
    Handover,
    bundle_of,
    exit_code,
    handover_of,
    name_of,
    take_up,
    unpack,
)
from raysm.features.grid.client.handle import GridHandle
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import identity_of
from raysm.features.script.client import Function
from raysm.features.script.request import Script
from tests.support.sagemaker import REGION


def test_a_source_folder_and_packages_travel_whole(laptop, tmp_path):
    (tmp_path / "pkg" / "inner").mkdir(parents=True)
    (tmp_path / "pkg" / "inner" / "main.py").write_text("")
    (tmp_path / "pkg" / "words.txt").write_text("a")
    (tmp_path / "own-1.whl").write_bytes(b"zip")
    workload = Script("inner/main.py", args=("{lr}",), source_dir=str(tmp_path / "pkg"))
    bundle = bundle_of(
        laptop.planned(workload=workload, options={"wheels": [tmp_path / "own-1.whl"]})
    )
    there = tmp_path / "there"
    there.mkdir()
    unpack(bundle, name_of(bundle), there)
    assert (there / "source" / "inner" / "main.py").exists()
    assert (there / "source" / "words.txt").read_text() == "a"
    assert (there / "wheels" / "own-1.whl").read_bytes() == b"zip"


def test_a_function_is_refused_since_it_would_have_to_be_pickled(laptop):
    package = package_of(Function(print, "x"))
    with pytest.raises(InvalidRequest, match="print"):
        bundle_of(laptop.planned([{"key": "a"}], workload=package.workload, package=package))


def run(laptop, running):
    """Run to the end; every job ends well once it is looked at again."""
    now = running.clock.now()
    while (wait_s := running.step(now)) is not None:
        now += max(wait_s, 1.0)
        laptop.end_jobs(now)


def test_the_rows_of_the_record_run_as_they_would_on_the_machine_that_handed_them_over(
    laptop, tmp_path
):
    laptop.send()
    running = laptop.take_up(tmp_path / "job")
    run(laptop, running)
    assert exit_code(running) == 0
    running.close()
    assert len({call["TrainingJobName"] for call in laptop.fake.sagemaker.sent}) == 2
    # What the script imports has come the whole way.
    listed = laptop.service.call("s3", "list_objects_v2", Bucket=laptop.service.bucket.name)[
        "Contents"
    ]
    assert [
        item["Key"].rpartition("/source/")[2] for item in listed if "/source/" in item["Key"]
    ] == [
        "helper.py",
        "train.py",
    ]
    assert GridHandle("drives", laptop.service).status().states == {"done": 2}


def test_the_next_attempt_knows_nothing_but_the_record_and_sends_nothing_twice(laptop, tmp_path):
    laptop.send()
    first = laptop.take_up(tmp_path / "first")
    first.step(first.clock.now())
    sent = [call["TrainingJobName"] for call in laptop.fake.sagemaker.sent]
    assert sent
    # Its host is lost, with all that lay there; it had let go, so that nobody waits for the end of
    # its lease here.
    first.close()
    shutil.rmtree(tmp_path / "first")
    second = laptop.take_up(tmp_path / "second")
    run(laptop, second)
    second.close()
    assert sorted({call["TrainingJobName"] for call in laptop.fake.sagemaker.sent}) == sorted(
        call["TrainingJobName"] for call in laptop.fake.sagemaker.sent
    )
    assert GridHandle("drives", laptop.service).status().states == {"done": 2}


def test_rows_that_somebody_stopped_are_no_failure_and_others_are(laptop, tmp_path):
    laptop.send()
    running = laptop.take_up(tmp_path / "job")
    execute = running.store.database.connection.execute
    execute("UPDATE task SET state = 'stopped'")
    assert exit_code(running) == 0
    execute("UPDATE task SET state = 'failed' WHERE key = 'a'")
    assert exit_code(running) == NOT_ALL_DONE
    execute("UPDATE task SET state = 'done'")
    execute("UPDATE grid SET state = 'paused'")
    assert exit_code(running) == NOT_ALL_DONE
    running.close()


def test_what_is_not_there_or_not_as_it_was_is_refused(laptop, tmp_path):
    laptop.send()
    uri = laptop.handed_over
    with pytest.raises(InvalidRequest, match=re.escape(f"{uri}x")):
        take_up(f"{uri}x", laptop.service, tmp_path, laptop.services)
    laptop.service.call(
        "s3",
        "put_object",
        Bucket=uri.split("/")[2],
        Key="/".join(uri.split("/")[3:]),
        Body=b"other",
    )
    with pytest.raises(InvalidPayload, match="changed"):
        take_up(uri, laptop.service, tmp_path, laptop.services)


def travelled(grid):
    """Return what is told as it is read where it arrives."""
    told = handover_of(grid, Script("train.py", args=("{lr}",)))
    return from_json(Handover, json.loads(json.dumps(to_json(told))))


def test_it_is_the_same_grid_wherever_its_files_lie(laptop, tmp_path):
    options = {
        "inputs": {"data": "s3://drives/{key}", "more": Input("s3://more")},
        "limits": Limits(max_runtime_s=60),
        "security": Security(output_kms_key="key"),
        "hyperparameters": {"depth": 3},
        "environment": {"A": "b"},
        "cluster": None,
    }
    grid = laptop.planned(options=options, markets=(True,), count=2)
    request = travelled(grid).request(tmp_path, Rules(retries=7))
    assert identity_of(request) == identity_of(grid.request)
    assert request.template.workload == Script(
        "train.py", args=("{lr}",), source_dir=str(tmp_path / "source")
    )
    chosen = request.template.options
    assert chosen["inputs"] == {"data": Input("s3://drives/{key}"), "more": Input("s3://more")}
    assert (chosen["limits"], chosen["security"]) == (options["limits"], options["security"])
    assert (chosen["hyperparameters"], chosen["environment"]) == ({"depth": "3"}, {"A": "b"})
    assert "cluster" not in chosen
    assert (request.markets, request.count) == ((True,), 2)
    assert request.rules.retries == 7


def test_what_another_raysm_has_handed_over_is_refused(laptop):
    told = to_json(handover_of(laptop.planned(), Script("train.py"))) | {"format": 99}
    with pytest.raises(InvalidRequest, match="format 99"):
        from_json(Handover, told)


def test_a_profile_of_this_machine_stays_here_and_its_region_is_named(laptop):
    grid = laptop.planned()
    target = AWS(role=grid.request.template.target.role, profile="mine")
    assert target.within("us-west-2") == AWS(role=target.role, region="us-west-2")
    assert travelled(grid).target.region == REGION
