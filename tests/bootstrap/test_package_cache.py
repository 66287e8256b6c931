"""Packages that the next job of a warm pool finds again."""

import json
import os

import pytest

from raysm.bootstrap.package_cache import MOST, PackageCache, key_of


def fill(cache, key, text="VALUE = 42\n"):
    with cache.fill(key) as site:
        (site / "travelled-1.0.dist-info").mkdir(parents=True)
        (site / "travelled-1.0.dist-info" / "METADATA").write_text("Name: travelled\n")
        (site / "travelled.py").write_text(text)
    return cache.find(key)


@pytest.fixture
def cache(tmp_path):
    return PackageCache(tmp_path / "warm")


def test_what_was_installed_is_found_by_the_same_key_alone(cache):
    assert cache.find("a") is None
    site = fill(cache, "a")
    assert (site / "travelled.py").read_text() == "VALUE = 42\n"
    assert site == cache.packages("a")
    assert cache.find("b") is None


def test_bytecode_that_python_has_written_since_changes_nothing(cache):
    site = fill(cache, "a")
    (site / "__pycache__").mkdir()
    (site / "__pycache__" / "travelled.cpython-311.pyc").write_bytes(b"bytecode")
    assert cache.find("a") == site


def change(site):
    status = (site / "travelled.py").stat()
    (site / "travelled.py").write_text("VALUE = 43\n")
    os.utime(site / "travelled.py", ns=(status.st_atime_ns, status.st_mtime_ns + 1))


@pytest.mark.parametrize(
    "spoil",
    [
        change,
        lambda site: (site / "travelled.py").unlink(),
        lambda site: (site / "travelled.py").write_text(""),
        lambda site: (site / "added.py").write_text(""),
        lambda site: (site.parent / "files.json").write_text("{"),
    ],
    ids=["changed", "missing", "torn", "added", "no list"],
)
def test_packages_that_are_not_as_they_were_are_not_used(cache, spoil):
    spoil(fill(cache, "a"))
    assert cache.find("a") is None


def test_packages_that_were_spoilt_are_said_and_can_be_installed_anew(cache, capfd):
    change(fill(cache, "a"))
    assert cache.find("a") is None
    assert "were changed since; installing them anew" in capfd.readouterr().err
    assert (fill(cache, "a") / "travelled.py").read_text() == "VALUE = 42\n"


def test_an_installation_that_fails_leaves_nothing(cache, tmp_path):
    def fail():
        with cache.fill("a") as site:
            site.mkdir()
            raise ValueError("no such package")

    with pytest.raises(ValueError, match="no such package"):
        fail()
    assert cache.find("a") is None
    assert list((tmp_path / "warm" / "raysm-packages").iterdir()) == []


def test_what_a_job_that_was_killed_has_left_is_removed(cache, tmp_path):
    left = tmp_path / "warm" / "raysm-packages" / "partial-left"
    left.mkdir(parents=True)
    fill(cache, "a")
    assert not left.exists()


def test_only_the_sets_that_were_used_last_are_kept(cache):
    for number in range(MOST):
        lists = fill(cache, str(number)).parent / "files.json"
        os.utime(lists, (number, number))
    assert cache.find("0")  # which makes it the youngest
    fill(cache, "new")
    assert [key for key in ["0", "1", "2", "new"] if cache.find(key)] == ["0", "2", "new"]


def test_a_key_counts_all_that_was_asked_for():
    one = key_of([["travelled"], {"a.whl": "digest"}])
    assert one == key_of(json.loads(json.dumps([["travelled"], {"a.whl": "digest"}])))
    assert one != key_of([["travelled"], {"a.whl": "another"}])
