"""What is released: an sdist and a wheel that install without a clone, and whose demo runs."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.utils import parse_wheel_filename

import raysm
from raysm.features.similarity.cluster.kernels import build
from raysm.features.similarity.cluster.kernels.build import ARM, X86, all_recipes, this_machine
from tests.support.homes import serving

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "raysm"
TIMEOUT_S = 170

LIBRARIES = "raysm/features/similarity/cluster/kernels/libraries/"
"""What was compiled of the C files."""

pytestmark = pytest.mark.long


def run(*command, cwd, **more):
    ended = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        **more,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


BUILD = (sys.executable, "-m", "build", "--no-isolation")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of this tree, because setuptools leaves its own files there."""
    tree = tmp_path_factory.mktemp("release") / "tree"
    ignored = shutil.ignore_patterns(
        ".git",
        ".venv",
        "*.egg-info",
        "__pycache__",
        ".*_cache",
        "build",
        "dist",
        "out",
        "site",
        ".cache",
    )
    shutil.copytree(ROOT, tree, ignore=ignored)
    return tree


@pytest.fixture(scope="module")
def release(tree):
    """The folder of an sdist and of the wheel that was built from it."""
    run(*BUILD, "--outdir", tree.parent / "dist", cwd=tree)
    return tree.parent / "dist"


@pytest.fixture(scope="module")
def wheel(release):
    (path,) = release.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel, contents):
    (name,) = [name for name in contents if name.endswith(".dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(name))


def test_a_package_index_would_take_both(release):
    assert "FAILED" not in run(
        sys.executable, "-m", "twine", "check", "--strict", *release.iterdir(), cwd=release
    )


def test_the_wheel_has_all_of_the_package_and_nothing_else(contents):
    ours = {name for name in contents if ".dist-info/" not in name}
    there = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.is_file()}
    made = {name for name in ours if name.startswith(LIBRARIES)}
    assert ours - made == {
        name for name in there if "__pycache__" not in name and LIBRARIES not in name
    }
    assert {"raysm/py.typed", "raysm/features/similarity/data/digits.csv.gz"} <= ours
    assert any(name.endswith(".c") for name in ours)
    assert any(name.endswith(".h") for name in ours)
    assert any(name.endswith("LICENSE") for name in contents)


def test_what_an_index_shows_leads_nowhere_that_is_not_there(metadata):
    text = metadata.get_payload()
    assert metadata["Description-Content-Type"].startswith("text/markdown")
    assert text.startswith("# raysm\n")
    # A link of the repository's own would lead nowhere there.
    assert not re.findall(r"\]\((?!https://)", text)

    assert metadata["Version"] == raysm.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert (
        metadata["Requires-Python"]
        == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    )


def test_the_source_distribution_has_what_its_pages_link_to(release):
    (path,) = release.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "docs/README.md",
        "examples/data/digits.csv.gz",
        "containers/README.md",
        "tests/test_release.py",
    } <= names
    targets = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert {target.rstrip("/") for target in targets} <= names


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The folder of an environment that has the wheel, and beside it what the tests themselves need."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, cwd=environment.parent)
    python = environment / "bin" / "python"
    run(
        *(
            sys.executable,
            "-m",
            "pip",
            "--python",
            python,
            "install",
            "--no-deps",
            "--no-index",
            wheel,
        ),
        cwd=environment.parent,
    )
    # What raysm needs is that of the tests; their .pth files, which name the tree, are not read
    # from there.
    (site,) = environment.glob("lib/python3*/site-packages")
    others = [path for path in sys.path if path.endswith("-packages")]
    (site / "needed.pth").write_text("".join(f"{path}\n" for path in others))
    return environment


def test_the_wheel_has_the_kernels_of_every_machine_that_there_is_a_compiler_for(contents):
    for machine in (X86, ARM):
        made = [name for name in contents if name.startswith(f"{LIBRARIES}{machine}-")]
        wanted = len(list(all_recipes(machine))) if build.compiler_for(machine) else 0
        assert len(made) == wanted


def test_the_wheels_tag_names_the_machines_of_its_kernels(wheel):
    made = {machine for machine in (X86, ARM) if build.compiler_for(machine)}
    tags = parse_wheel_filename(wheel.name)[3]
    wanted = {
        f"{name}_{machine}" for machine in made for name in ("manylinux2014", "manylinux_2_17")
    }
    assert {tag.platform for tag in tags} == (wanted or {"any"})
    # Without an extension module, one wheel is for all Pythons.
    assert {(tag.interpreter, tag.abi) for tag in tags} == {("py3", "none")}


def test_a_wheel_without_kernels_is_for_any_machine(tree, tmp_path):
    run(
        *BUILD,
        "--wheel",
        "--outdir",
        tmp_path,
        cwd=tree,
        env=os.environ | {"RAYSM_KERNELS_FOR": ""},
    )
    (path,) = tmp_path.iterdir()
    assert path.name == f"raysm-{raysm.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(path) as archive:
        assert not any(name.startswith(LIBRARIES) for name in archive.namelist())


def test_a_machine_that_no_compiler_is_there_for_is_refused(tree, tmp_path):
    variables = os.environ | {"RAYSM_KERNELS_FOR": X86, "PATH": str(tmp_path)}
    ended = subprocess.run(
        [*BUILD, "--wheel"], cwd=tree, env=variables, capture_output=True, text=True
    )
    assert ended.returncode != 0
    assert f"RAYSM_KERNELS_FOR: no C compiler for {X86} is installed" in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("libraries", "tag"),
    [
        ({}, None),
        ({"x86_64-a.so": b"GLIBC_2.2.5 GLIBC_2.14"}, "manylinux_2_17_x86_64.manylinux2014_x86_64"),
        # One function of a newer C library, and a wheel can be installed only where that is.
        ({"x86_64-a.so": b"GLIBC_2.2.5", "x86_64-b.so": b"GLIBC_2.29"}, "manylinux_2_29_x86_64"),
        (
            {"x86_64-a.so": b"GLIBC_2.38", "aarch64-a.so": b"GLIBC_2.17"},
            "manylinux_2_17_aarch64.manylinux2014_aarch64.manylinux_2_38_x86_64",
        ),
        # Linked with another C library, or for macOS.
        ({"aarch64-a.so": b"libSystem.B.dylib"}, None),
    ],
)
def test_a_wheels_platform_follows_from_the_c_library_that_its_kernels_need(
    libraries, tag, tmp_path
):
    for name, content in libraries.items():
        (tmp_path / name).write_bytes(content)
    assert build.platform_tag(tmp_path) == tag


@pytest.fixture(scope="module")
def libraries(wheel, contents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    with zipfile.ZipFile(wheel) as archive:
        return [
            Path(archive.extract(name, folder))
            for name in sorted(contents)
            if name.startswith(LIBRARIES)
        ]


def test_every_library_is_for_its_machine(libraries):
    for path in libraries:
        # What machine an ELF file is for stands in its 19th byte: 62 and 183
        # (https://refspecs.linuxfoundation.org/elf/).
        machine = X86 if path.name.startswith(X86) else ARM
        assert path.read_bytes()[18] == {X86: 62, ARM: 183}[machine], path.name


def test_they_need_no_newer_c_library_than_rays_own_wheels(libraries):
    if shutil.which("objdump") is None:
        pytest.skip("no objdump: install binutils")
    for path in libraries:
        listed = subprocess.run(
            ["objdump", "-p", path], capture_output=True, text=True, check=True
        ).stdout
        versions = [
            tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", listed)
        ]
        assert all(version <= build.MANYLINUX2014 for version in versions), path.name
        assert versions


def test_an_installed_wheel_needs_no_compiler(installed, tmp_path):
    """Which engine its similarity takes is what a machine with a compiler would take."""
    if build.compiler_for(this_machine()) is None:
        pytest.skip("no C compiler made the wheel")
    code = (
        "from raysm.features.similarity.cluster.kernels import build\n"
        "for recipe in build.all_recipes(build.this_machine()): assert build.find(recipe), recipe\n"
        "from raysm.core.protocol.packages import library\n"
        "import io, zipfile\n"
        "print(sum(name.endswith('.so') for name in zipfile.ZipFile(io.BytesIO(library())).namelist()))\n"
    )
    there = run(installed / "bin" / "python", "-c", code, cwd=tmp_path, env={"PATH": str(tmp_path)})
    # They travel with a job's payload too.
    assert int(there) >= len(list(all_recipes(this_machine())))


def test_kernels_of_an_installed_wheel_give_what_numpy_gives(installed, tmp_path):
    if build.compiler_for(this_machine()) is None:
        pytest.skip("no C compiler made the wheel")
    said = run(
        installed / "bin" / "python",
        ROOT / "tests" / "installed_wheel.py",
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
    )
    assert "equal to NumPy: " in said


def test_the_demo_runs_where_nothing_but_the_wheel_is_installed(installed, tmp_path):
    environment, empty = installed, tmp_path / "empty"
    python = environment / "bin" / "python"
    empty.mkdir()
    assert run(python, "-I", "-c", "import raysm; print(raysm.__file__)", cwd=empty).startswith(
        str(environment)
    )
    # No compiler is found there, nor anything else: the kernels are those that the wheel carries.
    where = {"PATH": str(empty), "TMPDIR": str(tmp_path)}
    with serving(tmp_path / "home") as home:
        said = run(
            *(environment / "bin" / "raysm", "demo", "--output", tmp_path / "out"),
            cwd=empty,
            env={"RAYSM_HOME": str(home), **where},
        )
    assert "algo-2 joined: 2 of 2 instances" in said
    assert "98.9 % of all pictures show the same digit" in said
    assert list(empty.iterdir()) == []
    engines = json.loads((tmp_path / "out" / "manifest.json").read_text())["engines"]
    assert engines
    assert build.compiler_for(this_machine()) is None or not any(
        "no C compiler" in name for name in engines
    )
    assert not list(tmp_path.glob("raysm-kernels-*"))
