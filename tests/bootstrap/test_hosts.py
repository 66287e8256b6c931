"""Which hosts there are, whatever the service wrote."""

from pathlib import Path

import pytest

from raysm.bootstrap.hosts import read_resource_config
from raysm.errors import InvalidConfig

WHERE = Path("resourceconfig.json")


def read(**data):
    return read_resource_config({"current_host": "algo-1", "hosts": ["algo-1", "algo-2", "algo-3"]} | data, WHERE)


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
