"""What a job leaves, as an input of the next one."""

import pytest

from raysm.client.outputs import input_of, output_path
from raysm.errors import InvalidRequest


@pytest.mark.parametrize(
    ("name", "path"),
    [("model", "model"), ("result", "model"), ("data", "data"), ("data/train.npy", "data/train.npy")],
)
def test_an_output_lies_where_sagemaker_puts_it(name, path):
    assert output_path(name) == path


@pytest.mark.parametrize("name", ["", "models", "checkpoints", "/data"])
def test_what_no_job_leaves_is_refused_with_what_it_does(name):
    with pytest.raises(InvalidRequest, match=r"a job leaves 'model' \(or 'result'\) and 'data', got"):
        output_path(name)


def test_a_whole_folder_in_s3_is_taken_with_its_slash_lest_others_of_the_same_beginning_come_along():
    assert input_of("s3://bucket/job/output", "data").uri == "s3://bucket/job/output/data/"
    assert input_of("s3://bucket/job/output", "data/model").uri == "s3://bucket/job/output/data/model"
    assert input_of("file:///home/me/job/output", "data").uri == "file:///home/me/job/output/data"
