"""Rank 0's model folder on its way to the head."""

import os

import pytest

from raysm.workloads.training.results.result import PIECE_BYTES, read_pieces, write_pieces


def test_files_arrive_as_they_were_large_and_empty_ones_too(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "inner").mkdir(parents=True)
    large = os.urandom(PIECE_BYTES + 5)
    (there / "model.safetensors").write_bytes(large)
    (there / "inner" / "empty").write_bytes(b"")
    write_pieces(read_pieces(there), here)
    assert (here / "model.safetensors").read_bytes() == large
    assert (here / "inner" / "empty").read_bytes() == b""


def test_files_behind_a_link_to_a_folder_arrive_too(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    (there / "step-2").mkdir(parents=True)
    (there / "step-2" / "weights").write_bytes(b"2")
    (there / "last").symlink_to("step-2")
    (there / "last.ckpt").symlink_to("step-2/weights")
    (there / "nowhere").symlink_to("gone")
    write_pieces(read_pieces(there), here)
    assert {path.relative_to(here).as_posix(): path.read_bytes() for path in here.rglob("*") if path.is_file()} == {
        "last.ckpt": b"2",
        "last/weights": b"2",
        "step-2/weights": b"2",
    }


def test_a_file_that_did_not_come_whole_is_not_there(tmp_path):
    def torn():
        yield "whole", b"x"
        yield "whole", b""
        yield "torn", b"x"
        raise ConnectionError("the instance is gone")

    with pytest.raises(ConnectionError):
        write_pieces(torn(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
