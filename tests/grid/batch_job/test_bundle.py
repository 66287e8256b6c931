"""The object by which a grid is handed over: its files as they travel with its jobs, sealed by its name."""

import pytest

from raysm.client.source.function import Function
from raysm.client.source.package import package_of
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.grid.batch_job.handover import bundle_of, name_of, unpack
from raysm.grid.rules import Rules
from raysm.request import Script


def test_a_script_travels_with_what_it_imports_and_runs_from_there(laptop, tmp_path):
    (tmp_path / "other.txt").write_text("not of it")
    bundle = bundle_of(laptop.planned())
    there = tmp_path / "there"
    there.mkdir()
    handover = unpack(bundle, f"s3://b/grid/{name_of(bundle)}", there)
    assert sorted(path.name for path in (there / "source").iterdir()) == ["helper.py", "train.py"]
    assert handover.request(there, Rules()).template.workload.script == "train.py"


def test_a_source_folder_and_packages_travel_whole(laptop, tmp_path):
    (tmp_path / "pkg" / "inner").mkdir(parents=True)
    (tmp_path / "pkg" / "inner" / "main.py").write_text("")
    (tmp_path / "pkg" / "words.txt").write_text("a")
    (tmp_path / "own-1.whl").write_bytes(b"zip")
    workload = Script("inner/main.py", args=("{lr}",), source_dir=str(tmp_path / "pkg"))
    bundle = bundle_of(laptop.planned(workload=workload, options={"wheels": [tmp_path / "own-1.whl"]}))
    there = tmp_path / "there"
    there.mkdir()
    unpack(bundle, name_of(bundle), there)
    assert (there / "source" / "inner" / "main.py").exists()
    assert (there / "source" / "words.txt").read_text() == "a"
    assert (there / "wheels" / "own-1.whl").read_bytes() == b"zip"


def test_the_same_grid_is_the_same_object(laptop, tmp_path):
    first = bundle_of(laptop.planned())
    (tmp_path / "train.py").touch()
    assert name_of(bundle_of(laptop.planned())) == name_of(first)
    (tmp_path / "helper.py").write_text("LR = 0.6\n")
    assert name_of(bundle_of(laptop.planned())) != name_of(first)


def test_what_was_changed_in_the_bucket_is_refused(laptop, tmp_path):
    bundle = bundle_of(laptop.planned())
    with pytest.raises(InvalidPayload, match="is not as it was written"):
        unpack(bundle + b" ", name_of(bundle), tmp_path)
    assert not (tmp_path / "source").exists()


def test_a_function_is_refused_since_it_would_have_to_be_pickled(laptop):
    package = package_of(Function(print, "x"))
    with pytest.raises(InvalidRequest, match="is no script, .* run this grid here, or make a script of it"):
        bundle_of(laptop.planned([{"key": "a"}], workload=package.workload, package=package))
