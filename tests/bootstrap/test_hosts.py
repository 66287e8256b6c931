"""Which hosts there are, whatever the service wrote."""

from pathlib import Path

import pytest

from raysm.bootstrap.hosts import Host, read_resource_config
from raysm.errors import InvalidConfig

WHERE = Path("resourceconfig.json")
TWELVE = sorted(f"algo-{i}" for i in range(1, 13))
GROUPS = [
    {"instance_group_name": "work", "instance_type": "ml.g5.xlarge", "hosts": ["algo-2", "algo-3"]},
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]


def read(**data):
    return read_resource_config({"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]} | data, WHERE)


def test_twelve_hosts_in_lexicographic_order_follow_their_numbers():
    assert TWELVE[:2] == ["algo-1", "algo-10"]
    found = read(hosts=TWELVE)
    assert [host.name for host in found.hosts] == [f"algo-{i}" for i in range(1, 13)]


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
        ({"hosts": "algo-1"}, "hosts: expected a list of host names"),
        ({"hosts": ["algo-1", 7]}, "expected a host name such as 'algo-1', got 7"),
        ({"hosts": ["algo-1", "a b"]}, "got 'a b'"),
        ({"current_host": "algo-9"}, "current_host 'algo-9' is not one of the hosts"),
        ({"current_host": None}, "current_host: expected a text"),
        ({"network_interface_name": 3}, "network_interface_name: expected a text"),
        ({"instance_groups": {}}, "instance_groups: expected a list of objects"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_the_file(change, words):
    with pytest.raises(InvalidConfig) as caught:
        read(**change)
    assert words in str(caught.value)
    assert str(caught.value).startswith("resourceconfig.json: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["hosts", "current_host"])
def test_a_missing_key_is_named(key):
    data = {"current_host": "algo-1", "hosts": ["algo-1"]}
    del data[key]
    with pytest.raises(InvalidConfig, match=f"the key '{key}' is missing"):
        read_resource_config(data, WHERE)
