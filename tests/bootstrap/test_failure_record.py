"""What the driver leaves of its failure, and when it becomes the job's."""

import pytest

from raysm.bootstrap.exit_status import blames_cluster, exception_beside, publish_failure, read_failure
from raysm.contract.result import EXCEPTION, FAILURE, Failure


@pytest.mark.parametrize(
    ("error_type", "blames"),
    [
        ("ValueError", False),
        ("ray.exceptions.RayTaskError(ValueError)", False),  # what a task raised is the user's own
        ("ray.exceptions.ActorDiedError", True),
        ("InstanceLost", True),
        ("RayFailed", True),
    ],
)
def test_a_driver_blames_the_cluster_by_the_errors_of_ray_and_of_lost_instances(error_type, blames):
    assert blames_cluster(Failure(error_type=error_type, message="why")) is blames


@pytest.mark.parametrize("text", [None, "{", "[]", '{"error_type": 1}'])
def test_a_record_that_is_missing_or_torn_says_nothing(tmp_path, text):
    record = tmp_path / "failure.json"
    if text is not None:
        record.write_text(text)
    assert read_failure(record) is None


def test_what_is_published_is_the_record_and_the_exception_beside_it(tmp_path):
    record, outputs = tmp_path / "run" / "failure.json", tmp_path / "outputs"
    failure = Failure(error_type="ValueError", message="no such column")
    failure.write(record)
    publish_failure(record, outputs)
    assert read_failure(outputs / FAILURE) == failure
    assert not (outputs / EXCEPTION).exists()
    exception_beside(record).write_bytes(b"pickled")
    publish_failure(record, outputs)
    assert (outputs / EXCEPTION).read_bytes() == b"pickled"
