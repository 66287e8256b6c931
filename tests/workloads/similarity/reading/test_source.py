"""A task finds its channel on its own instance, and maps it once."""

import json

import numpy as np
import pytest

from raysm.workloads.similarity.reading.matrix import Place, Source


def placed(path, folder, **more):
    return Source(channel="matrix", place=Place(path, folder / "scratch", "algo-1"), **more)


def test_a_process_maps_a_matrix_once_however_often_it_is_opened(tmp_path):
    np.save(tmp_path / "m.npy", np.ones((2, 3)))
    source = placed(tmp_path / "m.npy", tmp_path)
    assert source.open() is source.open(source.here())
    assert source.open() is placed(tmp_path / "m.npy", tmp_path).open()


def test_without_a_place_it_is_where_the_instances_own_channel_lies(tmp_path, monkeypatch):
    config = tmp_path / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps({"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}))
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    place = Source(channel="queries").here()
    assert (place.host, place.channel) == ("algo-2", tmp_path / "input" / "data" / "queries")
    assert place.scratch.name == "queries"


@pytest.mark.parametrize(
    ("name", "has"), [("a.npy", True), ("sub/a.npy", True), (".crc", False), ("_tmp/a.npy", False), (None, False)]
)
def test_an_instance_may_have_got_no_file_of_a_sharded_channel(tmp_path, name, has):
    folder = tmp_path / "matrix"
    folder.mkdir()
    if name:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    assert placed(folder, tmp_path, sharded=True).has_files() is has
