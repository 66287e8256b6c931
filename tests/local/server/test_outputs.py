"""What the instances of a job left, and where it is brought."""

import tarfile
from pathlib import PurePosixPath

import pytest

from raysm.contract.store import PARTIAL
from raysm.local.server.definitions import Output
from raysm.local.server.moto_services import MotoServices
from raysm.local.server.objects import Objects
from raysm.local.server.outputs import collect

MODEL = PurePosixPath("model")


@pytest.fixture
def bases(tmp_path):
    """The base folders of two instances, the head's first."""
    for host, names in (("algo-1", ("both", "deep/head")), ("algo-2", ("both", "other", f"half{PARTIAL}"))):
        for name in names:
            path = tmp_path / host / "model" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(host)
    return [tmp_path / "algo-1", tmp_path / "algo-2"]


def names_below(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def collected(tmp_path, bases, **fields):
    (tmp_path / "scratch").mkdir(exist_ok=True)
    output = Output(place=MODEL, uri=(tmp_path / "out").as_uri(), **fields)
    collect(Objects(MotoServices()), output, bases, tmp_path / "scratch", None)
    return tmp_path / "out"


def test_the_folders_of_all_instances_are_merged_and_the_heads_whole_file_stays(tmp_path, bases):
    out = collected(tmp_path, bases)
    assert names_below(out) == ["both", "deep/head", "other"]
    assert (out / "both").read_text() == "algo-1"


def test_an_archive_has_the_same_files_and_nothing_of_it_is_left_on_the_way(tmp_path, bases):
    archive = collected(tmp_path, bases, archive=True)
    with tarfile.open(archive) as tar:
        assert tar.getnames() == ["both", "deep/head", "other"]
    assert names_below(tmp_path / "scratch") == []


def test_of_nothing_there_is_an_archive_only_where_there_has_to_be_one(tmp_path):
    (tmp_path / "algo-1").mkdir()
    assert not collected(tmp_path, [tmp_path / "algo-1"], archive=True).exists()
    with tarfile.open(collected(tmp_path, [tmp_path / "algo-1"], archive=True, even_empty=True)) as tar:
        assert tar.getnames() == []
