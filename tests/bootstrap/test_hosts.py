"""Which hosts there are, whatever the service wrote."""

from pathlib import Path

import pytest

from raysm.bootstrap.hosts import Host, read_resource_config
from raysm.errors import InvalidConfig

WHERE = Path("resourceconfig.json")
GROUPS = [
    {"instance_group_name": "work", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2", "algo-3"]},
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]


def read(**data):
    return read_resource_config({"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]} | data, WHERE)


def test_groups_give_each_host_its_group_and_type():
    found = read(instance_groups=GROUPS, current_group_name="head", current_instance_type="ml.t3.medium")
    assert found.hosts == (
        Host("algo-1", "head", "ml.t3.medium"),
        Host("algo-2", "work", "ml.g5.xlarge"),
        Host("algo-3", "work", "ml.g5.xlarge"),
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hosts": []}, "hosts: expected a list of host names"),
        ({"hosts": ["algo-1", "a b"]}, "got 'a b'"),
        ({"current_host": "algo-9"}, "current_host 'algo-9' is not one of the hosts"),
        ({"instance_groups": {}}, "instance_groups: expected a list of objects"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file(change, words):
    with pytest.raises(InvalidConfig) as caught:
        read(**change)
    assert words in str(caught.value)
    assert str(caught.value).startswith("resourceconfig.json: ")
    assert "\n" not in str(caught.value)
