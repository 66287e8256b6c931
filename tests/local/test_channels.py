"""What each instance gets of each channel."""

import os
from pathlib import Path, PurePosixPath

import pytest

from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.channels import Entry, local_path, resolve
from raysm.request import Input

HOSTS = ("algo-1", "algo-2", "algo-3")


def folder_of(path, count):
    path.mkdir()
    for number in range(count):
        (path / f"part-{number:02}").write_text(str(number))
    return path


def sharded(path, hosts=HOSTS):
    found = resolve({"c": Input(str(path), distribution="ShardedByS3Key")}, hosts)
    return {host: [entry.name.relative_to("c").as_posix() for entry in entries] for host, entries in found.items()}


def test_a_replicated_folder_is_the_channel_on_every_host(tmp_path):
    folder = folder_of(tmp_path / "data", 1)
    found = resolve({"c": Input(str(folder))}, HOSTS)
    assert found == {host: [Entry(PurePosixPath("c"), folder)] for host in HOSTS}


def test_a_single_file_lies_in_the_channel_under_its_name(tmp_path):
    file = tmp_path / "m.npy"
    file.write_text("x")
    assert resolve({"c": Input(str(file))}, ["algo-1"]) == {"algo-1": [Entry(PurePosixPath("c/m.npy"), file)]}


def test_a_link_is_resolved_and_keeps_its_own_name(tmp_path):
    (tmp_path / "real").write_text("x")
    (tmp_path / "name.npy").symlink_to("real")
    found = resolve({"c": Input(str(tmp_path / "name.npy"))}, ["algo-1"])
    assert found["algo-1"] == [Entry(PurePosixPath("c/name.npy"), tmp_path / "real")]


def test_20_objects_are_dealt_to_3_hosts_as_7_7_and_6(tmp_path):
    found = sharded(folder_of(tmp_path / "data", 20))
    assert [len(found[host]) for host in HOSTS] == [7, 7, 6]
    assert found["algo-2"][:3] == ["part-01", "part-04", "part-07"]


def test_keys_are_sorted_as_bytes_across_folders(tmp_path):
    (tmp_path / "data" / "b").mkdir(parents=True)
    for name in ("b/1", "a", "b.txt", "B", "é"):
        (tmp_path / "data" / name).write_text("x")
    assert sharded(tmp_path / "data", ["algo-1"])["algo-1"] == ["B", "a", "b.txt", "b/1", "é"]


def test_with_fewer_objects_than_hosts_the_last_ones_get_nothing(tmp_path):
    assert sharded(folder_of(tmp_path / "data", 1)) == {"algo-1": ["part-00"], "algo-2": [], "algo-3": []}


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("/a b", "/a b"),
        ("/a#b?c", "/a#b?c"),
        ("relative", os.path.abspath("relative")),
        ("~/x", os.path.expanduser("~/x")),
    ],
)
def test_a_uri_that_names_a_path(uri, path):
    assert local_path("c", uri) == Path(path)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://bucket/key", "download it first"),
        ("file://host/a", "names the host 'host'"),
        ("https://example.org/x", "is no path, file://… or s3://…"),
    ],
)
def test_a_uri_that_names_no_path_of_this_machine_is_refused(uri, message):
    with pytest.raises(InvalidRequest, match=message):
        local_path("c", uri)


def test_a_path_that_is_missing_is_refused_with_its_name(tmp_path):
    with pytest.raises(InvalidInput, match="channel 'c': .*/nothing is not there"):
        resolve({"c": Input(str(tmp_path / "nothing"))}, HOSTS)


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_an_empty_folder_is_refused(tmp_path, distribution):
    (tmp_path / "data" / "below").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="holds no file"):
        resolve({"c": Input(str(tmp_path / "data"), distribution=distribution)}, HOSTS)


def test_what_is_neither_file_nor_folder_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="neither a file nor a folder"):
        resolve({"c": Input(str(tmp_path / "pipe"))}, HOSTS)
