"""Files of the user's that a job was linked to."""

import os

from raysm.local.channels import MOST_SHOWN, Originals
from raysm.local.job_spec import Channel


def watched(folder, *names):
    for name in names:
        (folder / name).write_text("before")
    return Originals([Channel(name="x", source=folder)])


def test_what_nobody_touched_is_no_complaint_nor_is_a_file_that_came(tmp_path):
    originals = watched(tmp_path, "a")
    (tmp_path / "b").write_text("new")
    assert originals.complaints() == []


def test_a_file_that_was_changed_removed_or_replaced_is_named_with_its_channel_and_the_remedy(tmp_path):
    originals = watched(tmp_path, "changed", "removed", "replaced", "left")
    (tmp_path / "changed").write_text("longer than before")
    (tmp_path / "removed").unlink()
    times = os.stat(tmp_path / "replaced")
    (tmp_path / "other").write_text("after!")
    os.utime(tmp_path / "other", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "other").rename(tmp_path / "replaced")
    (complaint,) = originals.complaints()
    assert "the input of channel 'x' was changed" in complaint
    assert ", ".join(str(tmp_path / name) for name in ("changed", "removed", "replaced")) in complaint
    assert "Write to SM_MODEL_DIR instead" in complaint
    assert str(tmp_path / "left") not in complaint


def test_of_many_files_the_first_are_named_and_the_others_counted(tmp_path):
    names = [f"{number:02}" for number in range(MOST_SHOWN + 3)]
    originals = watched(tmp_path, *names)
    for name in names:
        (tmp_path / name).unlink()
    (complaint,) = originals.complaints()
    assert f"{tmp_path / names[MOST_SHOWN - 1]} and 3 more; " in complaint


def test_a_channel_of_one_file_is_watched_too(tmp_path):
    (tmp_path / "a").write_text("before")
    originals = Originals([Channel(name="x", source=tmp_path / "a")])
    (tmp_path / "a").write_text("changed")
    assert len(originals.complaints()) == 1
