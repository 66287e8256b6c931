"""A payload in two parts: what jobs have alike is one for all, what they have not is small, and the whole holds."""

import platform
import stat

import pytest

from raysm.contract import payload, seal
from raysm.contract.library import LIBRARY
from raysm.contract.shared_payload import JOB, Parted, join
from raysm.errors import InvalidPayload
from raysm.request import JobRequest, Script
from raysm.request.function import PickledFunction

PYTHON = ".".join(platform.python_version_tuple()[:2])


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')")
    return tmp_path / "train.py"


def contents(script, name="a", *args):
    request = JobRequest(name=name, workload=Script(str(script), args=args))
    return payload.contents_of(request, token=f"token of {name}".encode())


def written(parted, folder):
    """Write both parts as the service brings them: a folder each."""
    shared, own = folder / "raysm", folder / "raysm-job"
    parted.write_shared(shared)
    own.mkdir()
    for name, content in parted.own().items():
        (own / name).write_bytes(content)
    return shared, own


def test_jobs_of_one_source_share_all_but_two_small_files(script):
    first, second = Parted(contents(script, "a", "--lr", "1")), Parted(contents(script, "b", "--lr", "2"))
    assert first.digest == second.digest
    assert first.own().keys() == {JOB, payload.TOKEN}
    assert sum(map(len, first.own().values())) <= 20 << 10
    assert first.own() != second.own()


def test_what_was_pickled_is_a_jobs_own_and_arrives_whole(tmp_path):
    def parted(number):
        request = JobRequest(name="a", workload=PickledFunction(name="f", python=PYTHON))
        return Parted(payload.contents_of(request, function=f"pickle {number}".encode(), token=b"t"))

    first, second = parted(1), parted(2)
    assert first.digest == second.digest
    folder = join(*written(first, tmp_path), tmp_path / "whole")
    assert payload.load(folder).function.read_bytes() == b"pickle 1"


def test_another_source_is_another_shared_part(script):
    before = Parted(contents(script)).digest
    script.write_text("print('bye')")
    assert Parted(contents(script)).digest != before


def test_the_shared_part_holds_neither_the_token_nor_the_request(script, tmp_path):
    shared, own = written(Parted(contents(script)), tmp_path)
    names = {path.relative_to(shared).as_posix() for path in shared.rglob("*") if path.is_file()}
    assert {LIBRARY, seal.START, "source/train.py"} <= names
    assert not names & {payload.TOKEN, payload.REQUEST, seal.DIGESTS}
    assert all(b"token of a" not in path.read_bytes() for path in shared.rglob("*") if path.is_file())


def test_both_parts_together_are_the_payload_that_the_call_tells_of(script, tmp_path):
    whole = contents(script, "a", "--lr", "1")
    folder = join(*written(Parted(whole), tmp_path), tmp_path / "whole")
    loaded = payload.load(folder)
    assert loaded.digest == whole.seal.digests
    assert loaded.request.workload == Script("train.py", args=("--lr", "1"))
    assert loaded.token() == b"token of a"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(loaded.token_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ["source/train.py", LIBRARY])
def test_a_shared_file_that_somebody_changed_is_found(script, tmp_path, name):
    shared, own = written(Parted(contents(script)), tmp_path)
    (shared / name).write_bytes(b"changed")
    with pytest.raises(InvalidPayload, match="does not match its digest"):
        payload.load(join(shared, own, tmp_path / "whole"))


def test_the_own_part_of_another_job_does_not_fit_another_source(script, tmp_path):
    shared, _ = written(Parted(contents(script)), tmp_path / "first")
    script.write_text("print('bye')")
    _, own = written(Parted(contents(script)), tmp_path / "second")
    with pytest.raises(InvalidPayload, match="does not match its digest"):
        payload.load(join(shared, own, tmp_path / "whole"))


@pytest.mark.parametrize("text", ["", "[]", '{"digests": "{}"}'])
def test_an_own_part_that_is_none_is_said(script, tmp_path, text):
    shared, own = written(Parted(contents(script)), tmp_path)
    (own / JOB).write_text(text)
    with pytest.raises(InvalidPayload, match="the job's own part in .* cannot be read"):
        join(shared, own, tmp_path / "whole")
