"""What can be seen to be wrong before a job is sent."""

import subprocess
import sys

import pytest

from raysm.errors import InvalidInput, InvalidRequest
from raysm.request.batch import BatchInference
from raysm.workloads.batch.first_look import check_inputs


def asked(**fields):
    return BatchInference(**{"name": "m", "python": "3.11", "batch_size": 2} | fields)


def test_a_folder_of_one_format_and_a_single_file_are_good(tmp_path):
    (tmp_path / "a.txt").write_text("1\n")
    check_inputs(asked(), {"data": tmp_path})
    check_inputs(asked(), {"data": tmp_path / "a.txt"})
    # What lies elsewhere is the job's to look at.
    check_inputs(asked(), {"data": None})


def test_what_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="the input 'data', has no files"):
        check_inputs(asked(), {"data": tmp_path})
    (tmp_path / "a.bin").write_text("1\n")
    with pytest.raises(InvalidInput, match="not all of one known format"):
        check_inputs(asked(), {"data": tmp_path})
    check_inputs(asked(read="files"), {"data": tmp_path})


def test_what_lies_behind_a_link_to_a_folder_is_looked_at_too(tmp_path):
    for name in ("disk", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "more").symlink_to(tmp_path / "disk")
    with pytest.raises(InvalidInput, match="the input 'data', has no files"):
        check_inputs(asked(), {"data": tmp_path / "data"})
    (tmp_path / "disk" / "a.txt").write_text("1\n")
    check_inputs(asked(), {"data": tmp_path / "data"})
    (tmp_path / "disk" / "b.bin").write_text("1\n")
    with pytest.raises(InvalidInput, match="not all of one known format"):
        check_inputs(asked(), {"data": tmp_path / "data"})


def test_two_inputs_need_a_name(tmp_path):
    with pytest.raises(InvalidRequest, match="has 2 inputs"):
        check_inputs(asked(), {"a": tmp_path, "b": None})


def test_a_client_without_ray_and_numpy_looks_too(tmp_path):
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from raysm.request.batch import BatchInference\n"
        "from raysm.workloads.batch.first_look import check_inputs\n"
        "workload = BatchInference(name='m', python='3.11', batch_size=2)\n"
        "check_inputs(workload, {'data': Path(sys.argv[1])})\n"
        "print({'ray', 'numpy'} & sys.modules.keys())\n"
    )
    (tmp_path / "a.txt").write_text("1\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
