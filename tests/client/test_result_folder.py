"""The folder into which a result is brought, step by step, as an interruption would leave it."""

import pytest

from raysm.client.results.result import (
    Earlier,
    begin_result,
    check_folder,
    earlier_result,
    finish_result,
    manifest_of,
    unmark,
)
from raysm.contract.result import MARK, Manifest, ResultFile
from raysm.errors import InvalidRequest

FIRST, SECOND, OTHER = (f"{task}-20261122-020304-{digit}123abcd" for task, digit in (("a", 0), ("a", 1), ("b", 0)))


def leave_result(folder, job, *names):
    """Leave a whole result."""
    for name in names:
        (folder / name).write_text(job)
    files = tuple(ResultFile(name=name, shape=(), bytes=1, sha256="0", how_to_read="") for name in names)
    manifest = Manifest(job=job, workload={}, inputs={}, files=files, versions={}, instances=("algo-1",), phases_s={})
    manifest.write(folder)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_that_is_not_there_or_empty_may_be_written_to(tmp_path):
    assert check_folder(tmp_path / "none", FIRST) is None
    assert check_folder(tmp_path, FIRST) is None


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(InvalidRequest, match="x is a file; name a folder"):
        check_folder(tmp_path / "x")


def test_what_is_no_result_is_left_alone(tmp_path):
    (tmp_path / "mine").touch()
    with pytest.raises(InvalidRequest, match="are not a result of raysm"):
        check_folder(tmp_path)


def test_only_a_result_of_the_same_task_may_be_replaced(tmp_path):
    leave_result(tmp_path, FIRST, "x")
    assert check_folder(tmp_path, SECOND) == Earlier(job=FIRST, names=frozenset({"x"}))
    with pytest.raises(InvalidRequest, match=f"holds the result of {FIRST}, another task than 'b'"):
        check_folder(tmp_path, OTHER)
    assert check_folder(tmp_path) is not None  # before a job has its name any result may do


def test_while_a_result_is_brought_the_folder_says_what_it_mixes(tmp_path):
    leave_result(tmp_path, FIRST, "old")
    begin_result(tmp_path, SECOND, ["new"], check_folder(tmp_path, SECOND))
    assert manifest_of(tmp_path) is None
    assert earlier_result(tmp_path) == Earlier(job=SECOND, names=frozenset({"old", "new"}))


def test_in_the_end_only_the_new_results_files_and_the_users_are_there(tmp_path):
    leave_result(tmp_path, FIRST, "old", "both")
    (tmp_path / "mine").touch()
    earlier = check_folder(tmp_path, SECOND)
    begin_result(tmp_path, SECOND, ["new", "both"], earlier)
    (tmp_path / "new").touch()
    finish_result(tmp_path, SECOND, ["new", "both"], earlier)
    assert names_in(tmp_path) == sorted([MARK, "both", "mine", "new"])
    assert earlier_result(tmp_path) == Earlier(job=SECOND, names=frozenset({"new", "both"}))


def test_the_mark_goes_once_a_manifest_says_the_same(tmp_path):
    begin_result(tmp_path, FIRST, ["x"], None)
    unmark(tmp_path)
    assert names_in(tmp_path) == [MARK]
    leave_result(tmp_path, FIRST, "x")
    unmark(tmp_path)
    assert names_in(tmp_path) == ["manifest.json", "x"]


@pytest.mark.parametrize("name", ["../mine", "deep/../../mine"])
def test_no_file_outside_of_the_folder_is_removed(tmp_path, name):
    (tmp_path / "mine").touch()
    folder = tmp_path / "out"
    (folder / "deep").mkdir(parents=True)
    finish_result(folder, SECOND, [], Earlier(job=FIRST, names=frozenset({name, str(tmp_path / "mine")})))
    assert (tmp_path / "mine").exists()


def test_a_manifest_that_is_not_raysms_is_none(tmp_path):
    (tmp_path / "manifest.json").write_text('{"mine": true}')
    assert manifest_of(tmp_path) is None
    assert earlier_result(tmp_path) is None
