import os
import stat

import pytest

from raysm.contract.store import put, put_first, read_json, remove_unfinished, removed_if_torn, replacing
from raysm.errors import InvalidConfig


def test_a_file_appears_whole_with_its_mode(tmp_path):
    put(tmp_path / "deep" / "secret", "text", mode=0o600)
    assert (tmp_path / "deep" / "secret").read_text() == "text"
    assert stat.S_IMODE((tmp_path / "deep" / "secret").stat().st_mode) == 0o600


def test_a_folder_that_has_to_be_there_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "gone" / "a", "text", within=tmp_path / "gone")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_stays_where_the_first_one_counts(tmp_path):
    put_first(tmp_path / "a", "first", mode=0o600)
    put_first(tmp_path / "a", "second")
    assert (tmp_path / "a").read_text() == "first"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def half_written(path):
    with replacing(path) as beside, beside.open("w", encoding="ascii") as file:
        file.write("half of the n")
        file.flush()
        file.write("ë")


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    put(tmp_path / "a", "old")
    with pytest.raises(UnicodeEncodeError):
        half_written(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"{'a': 1}", "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"1" * 10_000, "is not JSON"),
    ],
)
def test_a_file_that_is_no_json_is_refused_by_name(tmp_path, content, message):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InvalidConfig, match=message) as caught:
        read_json(tmp_path / "config.json")
    assert "config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_in_place_of_a_file_is_refused_by_name(tmp_path):
    with pytest.raises(InvalidConfig, match="cannot be read"):
        read_json(tmp_path)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o007])
def test_a_file_that_is_no_secret_has_the_mode_of_any_other_new_file(tmp_path, umask):
    before = os.umask(umask)
    try:
        put(tmp_path / "a", "text")
        with replacing(tmp_path / "b") as beside:
            beside.write_text("text")
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "ab"] == [0o666 & ~umask] * 2


def test_a_file_whose_writing_fails_is_removed_and_one_that_is_whole_stays(tmp_path):
    def half():
        with removed_if_torn(tmp_path / "a"):
            (tmp_path / "a").write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    with removed_if_torn(tmp_path / "b"):
        (tmp_path / "b").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_what_a_killed_process_was_writing_is_removed_and_nothing_of_the_user_s(tmp_path):
    (tmp_path / "deep").mkdir()
    with replacing(tmp_path / "deep" / "model.pt") as beside:
        os.link(beside, tmp_path / "deep" / "left")
        left = beside.name
    (tmp_path / "deep" / "left").rename(tmp_path / "deep" / left)
    for name in ("download.partial", ".hidden.partial", "model.pt.0123abcd.partial"):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["model.pt"]
    assert len(list(tmp_path.iterdir())) == 4
    remove_unfinished(tmp_path / "nowhere")
