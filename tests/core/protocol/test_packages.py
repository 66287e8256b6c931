"""Packages, and the source that travels."""

import io
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import pytest

import raysm
from raysm.core.protocol import payload
from raysm.core.protocol.packages import (
    NEEDS,
    kept_library,
    library,
    name_of,
    unpack,
    without_credentials,
)
from raysm.core.protocol.result import Manifest
from raysm.core.protocol.source import find_module, source_of
from raysm.core.request import JobRequest
from raysm.errors import InvalidPayload, InvalidRequest
from raysm.features.script.request import Script
from tests.support.payloads import pack_payload


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    (folder / "room").mkdir(parents=True)
    (folder / "__init__.py").write_text("a = 1\n")
    (folder / "room" / "b.py").write_text("b = 1\n")
    (folder / "data.csv").write_text("left at home")
    return folder


def kept(package):
    return sorted((package / "__pycache__").glob("raysm.zip.*"))


def names_of(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [name for name in archive.namelist() if ".dist-info/" not in name]


def test_modules_are_packed_once_and_anew_when_one_has_changed_is_gone_or_was_added(package):
    first = kept_library(package)
    assert names_of(first) == ["package/__init__.py", "package/__init__.pyc", "package/room/b.py"]
    (file,) = kept(package)
    assert file.read_bytes() == first
    # What is there is taken: nothing is packed a second time.
    file.unlink()
    assert kept_library(package) == first
    file.write_bytes(b"kept")
    assert kept_library(package) == b"kept"
    (package / "room" / "b.py").write_text("b = 2\n")
    os.utime(package / "room" / "b.py", ns=(1, 1))
    assert kept_library(package) != b"kept"
    (package / "c.py").write_text("")
    assert "package/c.py" in names_of(kept_library(package))
    (package / "c.py").unlink()
    assert names_of(kept_library(package)) == names_of(first)
    assert len(kept(package)) == 1


def test_a_zip_that_is_not_kept_has_no_bytecode(package):
    assert names_of(kept_library(package, keep=False)) == [
        "package/__init__.py",
        "package/room/b.py",
    ]
    assert kept(package) == []


@pytest.fixture
def unpacked(package, tmp_path):
    """Unpack the zip of a package with one module of an instance; ``change`` edits the zip's entries by name."""

    def unpacked(change=lambda name, content: content):
        (package / "instance").mkdir()
        (package / "instance" / "c.py").write_text("c = 1\n")
        library = tmp_path / "library.zip"
        with (
            zipfile.ZipFile(io.BytesIO(kept_library(package))) as archive,
            zipfile.ZipFile(library, "w") as changed,
        ):
            for name in archive.namelist():
                changed.writestr(name, change(name, archive.read(name)))
        return unpack(library, tmp_path / "unpacked")

    return unpacked


def test_an_instance_gets_the_bytecode_of_the_modules_that_it_runs_and_does_not_compile_them(
    unpacked,
):
    folder = unpacked()
    assert (folder / "package" / "room" / "b.py").read_text() == "b = 1\n"
    assert not (folder / "package" / "room" / "__pycache__").exists()
    # A change of the source would not be seen: the bytecode is part of what was verified.
    (folder / "package" / "instance" / "c.py").write_text("c = 2\n")
    command = [sys.executable, "-c", "from package.instance import c; print(c.c)"]
    assert (
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        == "1\n"
    )


def test_a_module_with_the_bytecode_of_another_python_is_compiled(unpacked):
    folder = unpacked(
        lambda name, content: b"other" + content if name.endswith(".pyc") else content
    )
    command = [sys.executable, "-c", "from package.instance import c; print(c.c)"]
    assert (
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
        == "1\n"
    )


def test_a_job_that_sends_jobs_has_what_instances_do_not_unpack_and_sends_the_zip_that_it_came_in(
    tmp_path,
):
    archive = tmp_path / "library.zip"
    archive.write_bytes(library())
    folder = unpack(archive, tmp_path / "unpacked", "raysm.features.session.runner:SessionRunner")
    assert not (folder / "raysm" / "core" / "client").exists()
    code = "import sys, raysm.features.grid, raysm.core.client.plan as plan, raysm.core.protocol.packages as packages\n"
    code += (
        "import raysm.features.session.cluster as own, raysm.features.training.cluster as other\n"
    )
    code += "print(plan.__file__, own.__file__, other.__file__, sep='\\n')\n"
    code += "print(packages.library() == open(sys.argv[1], 'rb').read())"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", code, archive]
    said = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    plan, own, other, same = said.splitlines()
    assert plan == str(folder / "raysm" / "raysm.zip" / "raysm" / "core" / "client" / "plan.py")
    assert own == str(folder / "raysm" / "features" / "session" / "cluster" / "__init__.py")
    assert other.startswith(
        str(
            folder
            / "raysm"
            / "raysm.zip"
            / "raysm"
            / "features"
            / "training"
            / "cluster"
            / "__init__.py"
        )
    )
    assert same == "True"


def test_a_zip_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "library.zip").write_bytes(b"torn")
    with pytest.raises(InvalidPayload, match="library.zip .*unpacked"):
        unpack(tmp_path / "library.zip", tmp_path / "unpacked")


def test_what_an_image_may_lack_is_required_as_the_project_requires_it():
    text = (Path(raysm.__file__).parents[1] / "pyproject.toml").read_text()
    assert all(f'"{requirement}"' in text for requirement in NEEDS.values())


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ray[default]>=2.60", "ray"),
        ("sparse_dot.topn", "sparse-dot-topn"),
        ("torch@https://host/torch.whl", "torch"),
        ("# torch", ""),
    ],
)
def test_the_package_that_a_line_names(line, name):
    assert name_of(line) == name


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "--extra-index-url https://me:p@ss@pypi.example/simple",
            "--extra-index-url https://***@pypi.example/simple",
        ),
        (
            "package @ git+ssh://git@github.com/me/it.git@main",
            "package @ git+ssh://***@github.com/me/it.git@main",
        ),
        ("https://a@one/x https://b@two/y", "https://***@one/x https://***@two/y"),
        (
            "plain @ https://pypi.example/plain@1.0.tar.gz",
            "plain @ https://pypi.example/plain@1.0.tar.gz",
        ),
    ],
)
def test_what_stands_before_a_host_is_starred_and_nothing_else(text, shown):
    assert without_credentials(text) == shown


def test_a_folder_without_init_loses_to_an_installed_package_of_its_name_as_in_python(tmp_path):
    for name in ("pytest", "no_such_package"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inner.py").touch()
    assert find_module("pytest", tmp_path) is None
    assert find_module("no_such_package", tmp_path) == tmp_path / "no_such_package"
    (tmp_path / "pytest" / "__init__.py").touch()
    assert find_module("pytest", tmp_path) == tmp_path / "pytest"


@pytest.fixture
def project(tmp_path):
    """Return how to write files of a project, by their names and contents, and get its folder."""
    folder = tmp_path / "project"

    def write(**contents):
        for name, content in contents.items():
            path = folder / name.replace("__slash__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return folder

    write.files = lambda contents: write(
        **{name.replace("/", "__slash__"): text for name, text in contents.items()}
    )
    return write.files


def travelling(workload, tmp_path):
    """Return the names of what the payload holds of the user's source."""
    pack_payload(JobRequest(name="a", workload=workload), tmp_path / "payload")
    source = payload.load(tmp_path / "payload").source
    return {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "statement",
    [
        "import os, helpers as h",
        "def f():\n    import helpers",
        "try:\n    import helpers\nexcept ImportError:\n    pass",
        "import importlib\nimportlib.import_module('helpers')",
        "__import__('helpers')",
    ],
)
def test_an_import_is_found_wherever_it_stands(project, tmp_path, statement):
    folder = project({"main.py": statement, "helpers.py": ""})
    assert "helpers.py" in travelling(Script(str(folder / "main.py")), tmp_path)


def test_imports_of_what_is_imported_are_followed(project, tmp_path):
    files = {
        "main.py": "import a",
        "a.py": "import b, main",
        "b.py": "import pkg.deep",
        "pkg/__init__.py": "",
        "pkg/deep/__init__.py": "from ..near import x",
        "pkg/near.py": "import c",
        "c.py": "",
        "d.py": "",
    }
    assert travelling(Script(str(project(files) / "main.py")), tmp_path) == set(files) - {"d.py"}


def test_a_package_travels_whole_without_what_is_hidden_cached_or_large(project, tmp_path):
    kept = {
        "pkg/__init__.py": "",
        "pkg/unseen.py": "",
        "pkg/sub/words.txt": "a b",
        "pkg/fast.so": "x" * 2_000_000,
    }
    left = {
        "pkg/.env": "SECRET=1",
        "pkg/__pycache__/unseen.pyc": "",
        "pkg/weights.bin": "x" * 2_000_000,
        "pkg/venv/pyvenv.cfg": "",
        "pkg/venv/lib/big.py": "",
    }
    folder = project({"main.py": "from pkg import unseen"} | kept | left)
    assert travelling(Script(str(folder / "main.py")), tmp_path) == {"main.py", *kept}
    said = source_of(Script(str(folder / "main.py"))).summary
    assert said == (
        "main.py, pkg/__init__.py, pkg/fast.so and 2 more, 2.0 MB; not pkg/weights.bin (2.0 MB), which is no code: "
        "make it an input, or send the folder with --source-dir … (in Python: source_dir=…)"
    )


def test_a_script_that_python_cannot_read_is_refused_and_a_module_that_it_cannot_is_not(
    project, tmp_path
):
    folder = project({"main.py": "import old", "old.py": "print 'hello'", "torn.py": "def f(:"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert travelling(Script(str(folder / "main.py")), tmp_path) == {"main.py", "old.py"}
    with pytest.raises(InvalidRequest, match="torn.py, line 1"):
        source_of(Script(str(folder / "torn.py")))


def test_neighbours_of_a_script_are_those_of_the_file_that_a_link_names(project, tmp_path):
    folder = project({"main.py": "import helpers", "helpers.py": ""})
    (tmp_path / "link.py").symlink_to(folder / "main.py")
    assert travelling(Script(str(tmp_path / "link.py")), tmp_path) == {"link.py", "helpers.py"}


def test_of_a_source_folder_hidden_files_environments_and_earlier_results_stay(project, tmp_path):
    kept = {"src/main.py": "", "src/data/manifest.json": "{}", "src/conf/a.yaml": ""}
    left = {
        "src/.env": "",
        "src/.git/x": "",
        "src/env/pyvenv.cfg": "",
        "src/env/x.py": "",
        "src/kept/.raysm": "job\n",
    }
    folder = project(kept | left)
    manifest = Manifest(
        job="j",
        workload={},
        inputs={},
        files=(),
        versions={},
        instances=("algo-1",),
        phases_s={"similarity": 1.0},
    )
    (folder / "src" / "out").mkdir()
    manifest.write(folder / "src" / "out")
    (folder / "src" / "out" / "neighbors.parquet").write_text("rows")
    (folder / "src" / "kept" / "model.bin").write_text("weights")
    asked = Script("main.py", source_dir=str(folder / "src"))
    assert travelling(asked, tmp_path) == {name.removeprefix("src/") for name in kept}
    assert source_of(asked).summary == "main.py, conf/a.yaml, data/manifest.json, 2 bytes"


def test_links_that_lead_out_of_the_source_folder_are_named_and_what_lies_there_is_counted(
    project, tmp_path
):
    folder = project({"main.py": "print(1)", "pkg/__init__.py": ""})
    (tmp_path / "elsewhere").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "elsewhere" / name).write_text("x")
    (folder / "docs").symlink_to(tmp_path / "elsewhere")
    (folder / "inner").symlink_to(folder / "pkg")
    source = source_of(Script("main.py", source_dir=str(folder)))
    told = f"2 of the files lie outside of {folder}, through links: docs/a.txt -> {tmp_path / 'elsewhere' / 'a.txt'}, "
    assert told in source.summary
    assert told in source.warning


@pytest.mark.parametrize(
    "script", ["main.py", "work/src/main.py", "{}/work/src/main.py", "link/main.py"]
)
def test_a_script_is_found_from_its_source_folder_and_from_the_working_folder(
    tmp_path, monkeypatch, script
):
    (tmp_path / "work" / "src").mkdir(parents=True)
    (tmp_path / "work" / "src" / "main.py").touch()
    (tmp_path / "link").symlink_to("work/src")
    monkeypatch.chdir(tmp_path)
    source = source_of(Script(script.format(tmp_path), source_dir="work/src"))
    assert (source.script, list(source.files)) == ("main.py", ["main.py"])


def test_a_file_whose_name_is_not_utf8_is_refused_by_its_name(project):
    folder = project({"main.py": "print(1)"})
    with open(os.fsencode(folder) + b"/bad\xff.py", "w"):
        pass
    with pytest.raises(InvalidRequest, match=r"'bad\\udcff\.py' .*UTF-8"):
        source_of(Script("main.py", source_dir=str(folder)))


def test_a_source_folder_that_contains_itself_by_a_link_travels_once(project, tmp_path):
    folder = project({"main.py": "", "pkg/a.py": ""})
    (folder / "pkg" / "again").symlink_to(folder)
    (folder / "gone").symlink_to(folder / "nowhere")
    assert travelling(Script("main.py", source_dir=str(folder)), tmp_path) == {
        "main.py",
        "pkg/a.py",
    }


def test_what_lies_beside_the_script_and_did_not_travel_is_named_where_it_was_missed(project):
    folder = project(
        {"main.py": "name = 'plugin'\n__import__(name)", "plugin.py": "", "pkg/sub.py": ""}
    )
    source = source_of(Script(str(folder / "main.py")))
    remedy = source.remedy_for("ModuleNotFoundError: No module named 'plugin'")
    assert "plugin.py lies beside main.py" in remedy
    assert f"--source-dir {folder}" in remedy
    assert "pkg lies beside" in source.remedy_for("ModuleNotFoundError: No module named 'pkg.sub'")
    assert "--requirement torch " in source.remedy_for(
        "ModuleNotFoundError: No module named 'torch'"
    )
    assert source.remedy_for("ValueError: plugin") is None


@pytest.mark.parametrize(
    ("failure", "is_named"),
    [
        (
            "AttributeError: partially initialized module 'ray' has no attribute 'init' (… a circular import)",
            True,
        ),
        ("the image lacks queue, which the training needs", True),
        ("ImportError: cannot import name 'Queue' from 'queue'", True),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", False),
        ("queue.Empty", False),
    ],
)
def test_a_file_that_hides_a_module_of_python_is_named_where_an_import_fails(
    failure, is_named, project
):
    source = source_of(Script(str(project({"queue.py": "import json"}) / "queue.py")))
    assert ("queue.py hides" in str(source.remedy_for(failure))) == is_named
    missing = "ModuleNotFoundError: No module named 'smdistributed.modelparallel'"
    assert "docs/guides/come-from-smdistributed.md" in source.remedy_for(missing)


def test_a_shell_script_travels_alone_and_a_command_with_its_source_folder(project, tmp_path):
    folder = project({"run.sh": "import os", "os.py": "", "Makefile": ""})
    assert travelling(Script(str(folder / "run.sh")), tmp_path) == {"run.sh"}
    command = Script("make", args=("data",), command=True, source_dir=str(folder))
    assert travelling(command, tmp_path / "command") == {"run.sh", "os.py", "Makefile"}


def test_a_source_folder_of_very_many_files_or_bytes_is_sent_with_a_warning(tmp_path):
    (tmp_path / "main.py").write_text("")
    sent = source_of(Script("main.py", source_dir=str(tmp_path)))
    assert sent.warning is None
    for number in range(1_000):
        (tmp_path / f"{number}.png").write_bytes(b"x")
    many = source_of(Script("main.py", source_dir=str(tmp_path)))
    assert f"{tmp_path} sends 1,001 files" in many.warning
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(2_000_000_000)
    assert (
        "2.0 GB, the largest of them weights.bin with 2.0 GB"
        in source_of(Script("main.py", source_dir=str(tmp_path))).warning
    )
