"""The folder that workers run in."""

import pytest

from raysm.bootstrap import environment
from raysm.contract import names
from raysm.workloads.training.results import working_folder


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
    folder = working_folder.make_folder(here, source)
    assert sorted(path.name for path in folder.iterdir()) == ["images", "main.py"]
    (folder / "checkpoint.pt").write_text("second attempt's")
    (folder / "model.bin").write_text("of the working folder")
    here.paths.model.mkdir()
    (here.paths.model / "model.bin").write_text("of the model folder")
    assert working_folder.make_folder(here, source) == folder  # a second attempt
    assert working_folder.save_outputs(here) == ["checkpoint.pt"]
    assert (here.paths.model / "checkpoint.pt").read_text() == "second attempt's"
    assert (here.paths.model / "model.bin").read_text() == "of the model folder"
