"""Tests of the module of this name."""

from pathlib import PurePosixPath

import pytest

from raysm.contract.names import INSTANCE_KIND_TAG
from raysm.local.server.definitions import kind_of, local_part
from raysm.local.server.validation import ApiError


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
