"""The folder that workers run in."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from raysm.bootstrap import environment
from raysm.contract import names
from raysm.workloads import folders


@pytest.fixture
def here(tmp_path):
    base = tmp_path / "ml"
    config = base / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    (base / "input" / "data" / "images").mkdir(parents=True)
    return environment.read({names.BASE_DIR: str(base)})


def test_a_script_sees_its_source_and_channels_and_leaves_what_it_makes(here, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "main.py").write_text("")
    folder = folders.make_folder(here, source)
    assert sorted(path.name for path in folder.iterdir()) == ["images", "main.py"]
    (folder / "checkpoint.pt").write_text("second attempt's")
    (folder / "model.bin").write_text("of the working folder")
    here.paths.model.mkdir()
    (here.paths.model / "model.bin").write_text("of the model folder")
    assert folders.make_folder(here, source) == folder  # a second attempt
    assert folders.save_outputs(here) == ["checkpoint.pt"]
    assert (here.paths.model / "checkpoint.pt").read_text() == "second attempt's"
    assert (here.paths.model / "model.bin").read_text() == "of the model folder"


def test_what_lies_on_another_disk_than_the_model_arrives_whole(here, tmp_path):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as other:
        if Path(other).stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("/dev/shm is no other disk here")
        elsewhere = replace(here, paths=replace(here.paths, scratch_root=Path(other)))
        folder = folders.make_folder(elsewhere, tmp_path / "ml" / "input" / "config")
        (folder / "best.pt").write_text("best")
        (folder / "runs" / "one").mkdir(parents=True)
        (folder / "runs" / "one" / "events").write_text("logged")
        assert folders.save_outputs(elsewhere) == ["best.pt", "runs"]
        assert not (folder / "best.pt").exists()
        assert not (folder / "runs").exists()
    model = here.paths.model
    assert sorted(path.relative_to(model).as_posix() for path in model.rglob("*") if path.is_file()) == [
        "best.pt",
        "runs/one/events",
    ]
    assert (model / "runs" / "one" / "events").read_text() == "logged"
