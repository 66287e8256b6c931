import shutil
from pathlib import Path

import pytest

import raysm
from raysm.client.images.context import write_context
from raysm.errors import MissingDependency

ROOT = Path(__file__).parents[3]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["Dockerfile.cpu", "Dockerfile.gpu"])
def test_a_context_has_the_package_and_what_installs_it(tmp_path, name):
    dockerfile = write_context(tmp_path / "context", name)
    assert dockerfile.read_text() == (ROOT / "containers" / name).read_text()
    assert files(tmp_path / "context") == [name, "PACKAGE.md", "pyproject.toml", "raysm"]
    assert (tmp_path / "context" / "raysm" / "__init__.py").is_file()
    assert not list((tmp_path / "context").rglob("__pycache__"))


def test_all_that_a_dockerfile_copies_is_there(tmp_path):
    context = tmp_path / "context"
    copied = [
        word
        for line in write_context(context, "Dockerfile.cpu").read_text().splitlines()
        if line.startswith("COPY ")
        for word in line.split()[1:-1]
    ]
    assert copied
    assert all((context / word).exists() for word in copied)


@pytest.fixture
def wheel(tmp_path):
    """A package as a wheel installs it: alone, with what images are built from inside."""
    package = tmp_path / "site-packages" / "raysm"
    (package / "containers").mkdir(parents=True)
    shutil.copy(raysm.__file__, package)
    for path in (ROOT / "containers" / "Dockerfile.cpu", ROOT / "pyproject.toml", ROOT / "PACKAGE.md"):
        shutil.copy(path, package / "containers")
    return package


def test_from_a_wheel_it_is_the_same_context(wheel, tmp_path):
    write_context(tmp_path / "context", "Dockerfile.cpu", wheel)
    assert files(tmp_path / "context") == ["Dockerfile.cpu", "PACKAGE.md", "pyproject.toml", "raysm"]
    assert files(tmp_path / "context" / "raysm") == ["__init__.py"]


def test_without_the_dockerfiles_it_says_what_to_install(wheel, tmp_path):
    (wheel / "containers" / "pyproject.toml").unlink()
    with pytest.raises(
        MissingDependency, match=r"pyproject\.toml is not there: .* from a wheel, or run raysm from a clo"
    ):
        write_context(tmp_path / "context", "Dockerfile.cpu", wheel)
    assert not (tmp_path / "context").exists()
