"""The payload of a job and its seal."""

import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raysm.core.protocol import payload
from raysm.core.protocol.payload import JOB, join
from raysm.core.protocol.seal import DIGESTS, EMPTY, START, Seal, digests_of, verify
from raysm.core.protocol.source import source_of_modules
from raysm.core.request import Input, JobRequest
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.features.script.request import Script
from raysm.features.similarity.request import Similarity
from tests.support import strangers
from tests.support.kinds import imported_from
from tests.support.payloads import pack_payload


@pytest.fixture
def packed(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')")
    request = JobRequest(name="a", workload=Script(str(tmp_path / "train.py"), args=["--x"]))
    pack_payload(request, tmp_path / "payload")
    return tmp_path / "payload"


def test_what_was_packed_is_loaded_with_the_script_beside_it(packed):
    loaded = payload.load(packed)
    assert loaded.request.workload == Script("train.py", args=("--x",))
    assert (loaded.source / "train.py").read_text() == "print('hello')"


def test_every_payload_has_a_token_of_its_own_that_only_its_owner_can_read(packed, tmp_path):
    request = JobRequest(name="b", workload=Similarity(top_k=1), inputs={"matrix": Input("m.npy")})
    pack_payload(request, tmp_path / "other")
    first, second = payload.load(packed), payload.load(tmp_path / "other")
    assert len(first.token()) == 64
    assert first.token() != second.token()
    assert stat.S_IMODE(first.token_file.stat().st_mode) == 0o600


def test_jobs_of_one_program_and_environment_have_one_code_digest(tmp_path):
    script = tmp_path / "train.py"

    def digest(name, text, **environment):
        script.write_text(text)
        request = JobRequest(name=name, workload=Script(str(script)), environment=environment)
        folder = tmp_path / name
        pack_payload(request, folder)
        return payload.load(folder).code_digest

    first = digest("a", "print(1)", E="1")
    assert digest("b", "print(1)", E="1") == first
    assert first not in (digest("c", "print(2)", E="1"), digest("d", "print(1)", E="2"))


def damage_request(folder):
    (folder / "request.json").write_text("{}")


def remove_script(folder):
    (folder / "source" / "train.py").unlink()


def add_a_file(folder):
    (folder / "source" / "added.py").write_text("import os")


def remove_digests(folder):
    (folder / "digests.json").unlink()


def unlist_the_token(folder):
    (folder / "token").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_request, "'request.json' does not match its digest"),
        (remove_script, "'source/train.py' is missing"),
        (add_a_file, "'source/added.py' is not listed"),
        (remove_digests, "digests.json is missing"),
        (unlist_the_token, "'token' is missing"),
    ],
)
def test_a_damaged_payload_is_refused_with_the_file_that_is_wrong(packed, damage, message):
    damage(packed)
    with pytest.raises(InvalidPayload, match=message):
        payload.load(packed)


READ = """
import sys
from pathlib import PurePosixPath
from pathlib import Path
from raysm.core.protocol import payload
before = list(sys.path)
workload = payload.load(Path(sys.argv[1])).request.workload
print(type(workload).__name__, workload.trials, workload.label, sys.path == before)
"""


def test_a_kind_of_the_users_own_is_imported_from_what_travelled_and_from_nothing_else_afterwards(
    tmp_path,
):
    with imported_from(tmp_path / "own") as sweep:
        source = source_of_modules(["sweep", "sweep_runner"], tmp_path / "own")
        pack_payload(
            JobRequest(name="a", workload=sweep(trials=3)), tmp_path / "payload", source=source
        )
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path / "payload")], capture_output=True, text=True
    )
    assert done.stdout.strip() == "Sweep 3 the sweep True", done.stderr


# The seal

# Bytecode behind a header that says that Python need not compare it with its source (PEP 552).
PLANT = """
source, = values
cache = importlib.util.cache_from_source(source)
os.mkdir(os.path.dirname(cache))
code = compile("print('stolen')", source, "exec")
with open(cache, "wb") as file:
    file.write(importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code))
"""


@strangers.needs_two_users
def test_bytecode_that_another_user_plants_in_the_bucket_is_not_run():
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "train.py").write_text("import helper")
        (folder / "helper.py").write_text("print('sent')")
        made = payload.contents_of(
            JobRequest(name="a", workload=Script(str(folder / "train.py"))), token=b"t"
        )
        shared, own = folder / "raysm", folder / "raysm-job"
        made.write_shared(shared)
        own.mkdir()
        for part, content in made.own_part().items():
            (own / part).write_bytes(content)
        shared.chmod(0o755)
        (shared / "source").chmod(0o777)
        strangers.run_by_another_user(PLANT, shared / "source" / "helper.py")
        with pytest.raises(
            InvalidPayload, match=r"'source/__pycache__/helper\.[\w-]+\.pyc' is not listed"
        ):
            payload.load(join(shared, own, folder / "joined"))
        made.write(folder / "whole")
        folder_of_cache = folder / "whole" / "source" / "__pycache__"
        folder_of_cache.mkdir()
        for cache in (shared / "source" / "__pycache__").iterdir():
            (folder_of_cache / cache.name).write_bytes(cache.read_bytes())
        # The attack works: Python prefers what was planted.
        done = subprocess.run(
            [sys.executable, str(folder / "whole" / "source" / "train.py")], capture_output=True
        )
        assert done.stdout == b"stolen\n"
        with pytest.raises(
            InvalidPayload, match=r"'source/__pycache__/helper\.[\w-]+\.pyc' is not listed"
        ):
            payload.load(folder / "whole")


def contents(tmp_path, **fields):
    (tmp_path / "train.py").write_text("print('hello')")
    return payload.contents_of(
        JobRequest(name="a", workload=Script(str(tmp_path / "train.py")), **fields)
    )


def test_a_file_that_changes_between_the_seal_and_the_writing_is_refused_by_name(tmp_path):
    made = contents(tmp_path)
    assert made.seal
    (tmp_path / "train.py").write_text("print('other')")
    with pytest.raises(InvalidRequest, match="'source/train.py' does not match"):
        made.write(tmp_path / "payload")


def test_neither_the_command_nor_what_is_printed_of_a_payload_holds_its_token(tmp_path):
    made = contents(tmp_path)
    token = made.files[payload.TOKEN].decode()
    command = made.seal.command(tmp_path, tmp_path / "failure")
    assert not [text for text in (*command, repr(made.seal)) if token in text]


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')")
    return tmp_path / "train.py"


def parted_contents(script, name="a", *args):
    request = JobRequest(name=name, workload=Script(str(script), args=args))
    return payload.contents_of(request, token=f"token of {name}".encode())


def written(parted, folder):
    """Write both parts as the service brings them: a folder each."""
    shared, own = folder / "raysm", folder / "raysm-job"
    parted.write_shared(shared)
    own.mkdir()
    for name, content in parted.own_part().items():
        (own / name).write_bytes(content)
    return shared, own


def test_jobs_of_one_source_share_all_but_two_small_files(script):
    first, second = (
        parted_contents(script, "a", "--lr", "1"),
        parted_contents(script, "b", "--lr", "2"),
    )
    assert first.shared_digest == second.shared_digest
    assert first.own_part().keys() == {JOB, payload.TOKEN}
    assert sum(map(len, first.own_part().values())) <= 20 << 10
    assert first.own_part() != second.own_part()


def test_both_parts_together_are_the_payload_that_the_call_tells_of(script, tmp_path):
    whole = parted_contents(script, "a", "--lr", "1")
    folder = join(*written(whole, tmp_path), tmp_path / "whole")
    loaded = payload.load(folder)
    assert loaded.digest == whole.seal.digests
    assert loaded.request.workload == Script("train.py", args=("--lr", "1"))
    assert loaded.token() == b"token of a"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(loaded.token_file.stat().st_mode) == 0o600


SEAL = Seal(start=hashlib.sha256(b"print('begun')").hexdigest(), digests="1" * 64)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "payload"
    (folder / "source").mkdir(parents=True)
    (folder / START).write_bytes(b"print('begun')")
    (folder / "source" / "user.py").write_bytes(b"one")
    (folder / DIGESTS).write_text(json.dumps(digests_of(folder)))
    return folder


def run(folder):
    # The test's own Python, in place of the one that an image has first on its path.
    _, *arguments = SEAL.command(folder, folder.parent / "failure")
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "name",
    [
        "source/__pycache__/user.cpython-311.pyc",
        ".hidden/user.py",
        "source/sitecustomize.py",
        "user.cpython-311-x86_64-linux-gnu.so",
    ],
)
def test_every_file_that_is_not_listed_is_refused(folder, name):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"")
    with pytest.raises(InvalidPayload, match=re.escape(f"{name!r} is not listed")):
        verify(folder)


def test_a_file_that_became_a_link_or_a_pipe_is_refused(folder):
    user = folder / "source" / "user.py"
    user.rename(folder.parent / "user.py")
    user.symlink_to(folder.parent / "user.py")
    with pytest.raises(InvalidPayload, match="'source/user.py' does not match"):
        verify(folder)
    user.unlink()
    os.mkfifo(user)
    with pytest.raises(InvalidPayload, match="'source/user.py' does not match"):
        verify(folder)


def test_a_link_that_is_listed_must_still_lead_to_the_same_place(folder):
    (folder / "code").symlink_to("source")
    (folder / DIGESTS).write_text(json.dumps(digests_of(folder)))
    verify(folder)
    (folder / "code").unlink()
    (folder / "code").symlink_to("/tmp")
    with pytest.raises(InvalidPayload, match="'code' does not match"):
        verify(folder)


def test_the_command_runs_the_start_that_was_sent(folder):
    assert run(folder).stdout == "begun\n"


def test_the_command_runs_no_other_start_and_says_so_in_the_failure_file(folder):
    (folder / START).write_bytes(b"print('stolen')")
    done = run(folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        folder.parent / "failure"
    ).read_text() == f"{folder / START} is not the one that was sent"


def test_empty_files_that_the_download_left_out_are_made_again(folder):
    package = folder / "source" / "package"
    (package / "part").mkdir(parents=True)
    (package / "part" / "__init__.py").touch()
    (package / "part" / "none.txt").touch()
    (folder / DIGESTS).write_text(json.dumps(digests_of(folder)))
    shutil.rmtree(package)
    assert "source/package/part/__init__.py" in verify(folder)
    assert (package / "part" / "__init__.py").read_bytes() == b""
    assert (package / "part" / "none.txt").read_bytes() == b""


@pytest.mark.parametrize(
    "digests", [[EMPTY], {"../outside": EMPTY}, {"source/user.py/below": EMPTY}]
)
def test_digests_that_name_no_file_of_the_payload_are_refused_and_make_none(folder, digests):
    (folder / DIGESTS).write_text(json.dumps(digests))
    with pytest.raises(InvalidPayload):
        verify(folder)
    assert not (folder.parent / "outside").exists()
