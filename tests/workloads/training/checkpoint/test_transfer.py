import pytest

from raysm.errors import InvalidConfig
from raysm.workloads.training.checkpoint.transfer import FileTransfer, plan_transfers


def test_each_file_goes_once_from_an_instance_that_has_it_to_all_that_lack_it():
    has = {"a": {"1"}, "b": {"2"}, "c": set()}
    needs = {"a": {"1", "2"}, "b": {"1"}, "c": {"1"}}
    assert plan_transfers(needs, has) == [FileTransfer("1", "a", ("b", "c")), FileTransfer("2", "b", ("a",))]


def test_what_no_instance_has_is_named():
    with pytest.raises(InvalidConfig, match="file 2 is on no instance"):
        plan_transfers({"a": {"1", "2"}}, {"a": {"1"}})
