"""Which check a workload names is found, and what of its inputs it is shown."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from raysm.client.checks import check_inputs
from raysm.errors import InvalidInput
from raysm.request import Input


@dataclass(frozen=True)
class Looked:
    """As much of a workload as the look needs."""

    input_check: ClassVar[str | None] = f"{__name__}:check"


@dataclass(frozen=True)
class Unlooked(Looked):
    input_check: ClassVar[str | None] = None


@dataclass(frozen=True)
class Heavy(Looked):
    input_check: ClassVar[str | None] = "a_package_that_is_not_here:check"


def check(workload, paths):
    """Say what was shown."""
    raise InvalidInput(repr(sorted(paths.items())))


def shown(tmp_path, *uris):
    with pytest.raises(InvalidInput) as caught:
        check_inputs(Looked(), {f"c{index}": Input(uri) for index, uri in enumerate(uris)})
    return str(caught.value)


def test_inputs_of_this_machine_are_shown_as_paths_and_others_as_unknown(tmp_path):
    expected = [("c0", tmp_path / "x"), ("c1", tmp_path / "y"), ("c2", None)]
    assert shown(tmp_path, str(tmp_path / "x"), (tmp_path / "y").as_uri(), "s3://b/z") == repr(expected)
    assert isinstance(expected[0][1], Path)


@pytest.mark.parametrize("workload", [Unlooked(), Heavy()], ids=["it names no check", "its check lacks a package here"])
def test_where_nobody_can_look_the_job_will_say(workload, tmp_path):
    check_inputs(workload, {"c": Input(str(tmp_path / "none"))})
