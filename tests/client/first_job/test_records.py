"""The folder of the first hour: calls with their answers, in order, blanked."""

import json

import pytest

from raysm.client.exchange import Exchange
from raysm.client.first_job.blanking import Blanks
from raysm.client.first_job.records import Records


def exchange(operation, answer=None, **parameters):
    return Exchange(service="s3", operation=operation, parameters=parameters, answer=answer or {}, status=200)


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path / "out")


def names(records):
    return sorted(path.name for path in (records.folder / "calls").iterdir())


def test_nothing_is_written_before_it_is_known_what_has_to_be_blanked(records):
    records.observe(exchange("PutObject", Bucket="mine"))
    assert not records.folder.exists()
    records.begin(Blanks({"mine": "BUCKET"}))
    (path,) = (records.folder / "calls").iterdir()
    assert path.name == "0001-before-s3-PutObject.json"
    assert json.loads(path.read_text())["parameters"] == {"Bucket": "BUCKET"}


def test_calls_are_numbered_and_named_by_their_trial(records):
    records.begin(Blanks({}))
    records.trial = "spot"
    records.observe(exchange("PutObject"))
    records.observe(exchange("PutObject"))
    assert names(records) == ["0001-spot-s3-PutObject.json", "0002-spot-s3-PutObject.json"]


def test_a_poll_that_is_answered_as_the_last_time_is_not_kept_again(records):
    records.begin(Blanks({}))
    for status in ("Training", "Training", "Completed"):
        answer = {"Status": status, "ResponseMetadata": {"RequestId": status * 2}}
        records.observe(exchange("DescribeTrainingJob", answer))
    assert len(names(records)) == 2


def test_a_trial_keeps_texts_and_json_blanked(records):
    records.begin(Blanks({"mine": "BUCKET"}))
    records.trial = "training"
    records.keep("log.txt", "mine\n")
    records.keep("objects.json", {"mine": 1})
    records.write("answers.md", "of mine\n")
    assert (records.folder / "training" / "log.txt").read_text() == "BUCKET\n"
    assert json.loads((records.folder / "training" / "objects.json").read_text()) == {"BUCKET": 1}
    assert (records.folder / "answers.md").read_text() == "of BUCKET\n"
