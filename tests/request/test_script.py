"""What every script says."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.script import Script
from raysm.request.training import TorchScript

BOTH = pytest.mark.parametrize("kind", [Script, TorchScript])


@BOTH
def test_a_script_without_a_path_is_refused(kind):
    with pytest.raises(InvalidRequest, match=f"{kind.__name__}: the path of the script is empty"):
        kind("")


@BOTH
def test_arguments_in_one_text_are_refused_with_the_list_that_was_meant(kind):
    with pytest.raises(InvalidRequest, match=rf"{kind.__name__}: args .*give args=\['--lr', '1'\]"):
        kind("train.py", args="--lr 1")


@BOTH
def test_arguments_become_texts(kind):
    assert kind("train.py", args=["--lr", 0.1]).args == ("--lr", "0.1")


@BOTH
def test_a_script_in_a_payload_has_no_folder_of_its_own_any_more(kind):
    moved = kind("train.py", source_dir="src", args=["1"]).moved_to("sub/train.py")
    assert moved == kind("sub/train.py", args=["1"])


def test_a_job_is_named_after_the_script():
    assert Script("folder/my_train.py").title == "my_train"
