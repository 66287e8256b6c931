"""Tests of the module of this name."""

from pathlib import PurePosixPath

import pytest

from raysm.contract.job_api import APIS, PROCESSING, TRAINING
from raysm.contract.names import INSTANCE_KIND_TAG
from raysm.local.server.definitions import command_of, kind_of, local_part, seconds
from raysm.local.server.served_apis import served
from raysm.local.server.validation import ApiError
from tests.support.api_requests import processing_parameters, training_parameters

PARAMETERS = {TRAINING: training_parameters, PROCESSING: processing_parameters}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_every_api_is_served_and_its_requests_name_an_image(api):
    assert served(api).image(PARAMETERS[api]()) == "image:latest"


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_what_is_left_to_the_image_is_refused_since_nothing_is_known_of_it(api):
    with pytest.raises(ApiError, match="give ContainerEntrypoint"):
        served(api).check(PARAMETERS[api]())


def test_the_main_process_is_the_entry_point_with_its_arguments():
    assert command_of("image", ["python3", "x.py"], ["--a", "1"]) == ("python3", "x.py", "--a", "1")
    assert command_of("image", ["true"], None) == ("true",)


def test_what_is_left_to_the_image_is_refused_with_its_name():
    with pytest.raises(ApiError, match="entry point of the image 'mine:latest': give ContainerEntrypoint"):
        command_of("mine:latest", [], None)


def test_an_image_of_no_kind_is_played_by_the_servers_own_kind():
    assert kind_of("mine:latest", {}, "process") == "process"


def test_a_tag_comes_before_the_servers_own_kind():
    assert kind_of("mine:latest", {INSTANCE_KIND_TAG: "namespace"}, "process") == "namespace"


@pytest.mark.parametrize("path", ["/opt/ml", "/opt/ml/../x", "/tmp/x", "relative", "/opt/mlx/y"])
def test_a_path_that_is_not_below_the_base_folder_is_refused(path):
    with pytest.raises(ApiError, match="must lie below /opt/ml"):
        local_part("LocalPath", path)


def test_a_path_is_taken_relative_to_the_base_folder_also_where_it_must_lie_deeper():
    least = PurePosixPath("/opt/ml/processing")
    assert local_part("LocalPath", "/opt/ml/processing/in", least) == PurePosixPath("processing/in")
    with pytest.raises(ApiError, match="must lie below /opt/ml/processing"):
        local_part("LocalPath", "/opt/ml/model", least)


@pytest.mark.parametrize("condition", [{}, {"MaxRuntimeInSeconds": None}, {"MaxRuntimeInSeconds": 0}])
def test_a_limit_that_nobody_set_is_the_default(condition):
    assert seconds(condition, "MaxRuntimeInSeconds", 7.0) == 7.0
    assert seconds({"MaxRuntimeInSeconds": 5}, "MaxRuntimeInSeconds", 7.0) == 5.0
