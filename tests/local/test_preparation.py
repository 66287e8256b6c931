"""What each instance gets of each channel, and how a job is prepared."""

import json
import os
from pathlib import Path, PurePosixPath

import pytest

from raysm.core.protocol.job_api import PROCESSING
from raysm.errors import InvalidInput, InvalidRequest
from raysm.local.instances.process import ProcessSite
from raysm.local.job_spec import Channel, JobSpec, number_hosts
from raysm.local.preparation import (
    SMALL_BYTES,
    Entry,
    hand_over,
    local_path,
    relink,
    resolve_channels,
    write_files,
)
from raysm.local.scenario import Capacity, Container, Scenario

HOSTS = ("algo-1", "algo-2", "algo-3")


def resolved(source, count=3, **fields):
    channel = Channel(name="c", source=source, **fields)
    return resolve_channels(
        JobSpec(name="x", groups=number_hosts(("g", "t", count)), command=(), channels=(channel,))
    )


def folder_of(path, count):
    path.mkdir()
    for number in range(count):
        (path / f"part-{number:02}").write_text(str(number))
    return path


def sharded(path, count=3):
    found = resolved(path, count, distribution="ShardedByS3Key")
    return {
        host: [entry.name.relative_to("input/data/c").as_posix() for entry in entries]
        for host, entries in found.items()
    }


def bases_in(folder):
    bases = {host: folder / host for host in HOSTS}
    for base in bases.values():
        base.mkdir()
    return bases


def of_size(path, size):
    path.write_bytes(b"")
    os.truncate(path, size)
    return path


def test_a_folder_of_a_file_system_is_not_copied_however_small(tmp_path):
    entries = resolved(folder_of(tmp_path / "images", 1), is_mounted=True)
    assert [(entry.owned, entry.is_mounted) for entry in entries["algo-1"]] == [(False, True)]


@pytest.mark.parametrize(("size", "copied"), [(SMALL_BYTES, True), (SMALL_BYTES + 1, False)])
def test_a_replicated_folder_is_the_channel_on_every_host_which_has_its_own_if_it_is_small(
    tmp_path, size, copied
):
    folder = folder_of(tmp_path / "data", 0)
    of_size(folder / "x", size)
    found = resolved(folder)
    assert found == {host: [Entry(PurePosixPath("input/data/c"), folder, copied)] for host in HOSTS}


def test_of_a_small_channel_a_folder_behind_a_link_is_the_instance_s_own_too(tmp_path):
    folder_of(tmp_path / "elsewhere", 2)
    folder = folder_of(tmp_path / "data", 1)
    (folder / "train").symlink_to(tmp_path / "elsewhere")
    bases = bases_in(tmp_path)
    hand_over(resolved(folder), bases)
    for base in bases.values():
        train = base / "input/data/c/train"
        assert not train.is_symlink()
        assert sorted(path.name for path in train.iterdir()) == ["part-00", "part-01"]


def test_an_instance_that_is_gone_does_not_come_back_with_its_channels(tmp_path):
    folder = folder_of(tmp_path / "data", 2)
    bases = bases_in(tmp_path)
    bases[HOSTS[1]].rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        hand_over(resolved(folder), bases)
    assert not bases[HOSTS[1]].exists()


def test_20_objects_are_dealt_to_3_hosts_as_7_7_and_6(tmp_path):
    found = sharded(folder_of(tmp_path / "data", 20))
    assert [len(found[host]) for host in HOSTS] == [7, 7, 6]
    assert found["algo-2"][:3] == ["part-01", "part-04", "part-07"]


def test_keys_are_sorted_as_bytes_across_folders(tmp_path):
    (tmp_path / "data" / "b").mkdir(parents=True)
    for name in ("b/1", "a", "b.txt", "B", "é"):
        (tmp_path / "data" / name).write_text("x")
    assert sharded(tmp_path / "data", 1)["algo-1"] == ["B", "a", "b.txt", "b/1", "é"]


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
        ("s3://bucket/key", "download it"),
        ("file://host/a", "names the host 'host'"),
        ("https://example.org/x", "neither a path nor "),
    ],
)
def test_a_uri_that_names_no_path_of_this_machine_is_refused(uri, message):
    with pytest.raises(InvalidRequest, match=message):
        local_path("c", uri)


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_an_empty_folder_is_refused(tmp_path, distribution):
    (tmp_path / "data" / "below").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="has no files"):
        resolved(tmp_path / "data", distribution=distribution)


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_what_the_job_owns_is_moved_or_copied_into_each_instance(tmp_path, distribution):
    folder = folder_of(tmp_path / "data", 3)
    bases = bases_in(tmp_path)
    hand_over(resolved(folder, distribution=distribution, owned=True), bases)
    assert not list(folder.iterdir())
    found = [
        sorted(path.name for path in (base / "input/data/c").iterdir()) for base in bases.values()
    ]
    every = ["part-00", "part-01", "part-02"]
    assert found == (
        [every] * 3 if distribution == "FullyReplicated" else [[name] for name in every]
    )
    (bases["algo-1"] / "input/data/c/part-00").write_text("changed")
    assert (
        distribution != "FullyReplicated"
        or (bases["algo-2"] / "input/data/c/part-00").read_text() == "0"
    )


INSIDE = Path("/opt/ml")


def test_a_link_to_what_the_instance_called_opt_ml_leads_to_where_that_lies(tmp_path):
    model = tmp_path / "model"
    (model / "step-1").mkdir(parents=True)
    (model / "step-1" / "shard").write_text("weights")
    (model / "last").symlink_to("/opt/ml/model/step-1")
    (model / "deep").mkdir()
    (model / "deep" / "link").symlink_to("/opt/ml/model/step-1/shard")
    relink(tmp_path, INSIDE)
    assert (
        (model / "last" / "shard").read_text() == (model / "deep" / "link").read_text() == "weights"
    )


def test_every_other_link_stays_as_it_is(tmp_path):
    links = {
        "relative": "step-1",
        "elsewhere": "/opt/ml-2/model",
        "out": "/opt/ml/../../etc/passwd",
        "nowhere": "/no/such/file",
    }
    (tmp_path / "model").mkdir()
    (tmp_path / "input" / "data").mkdir(parents=True)
    for name, target in links.items():
        (tmp_path / "model" / name).symlink_to(target)
    (tmp_path / "input" / "data" / "given").symlink_to("/opt/ml/model")
    relink(tmp_path, INSIDE)
    assert {name: str((tmp_path / "model" / name).readlink()) for name in links} == links
    assert str((tmp_path / "input" / "data" / "given").readlink()) == "/opt/ml/model"


@pytest.fixture
def site():
    with ProcessSite() as site:
        yield site


def test_a_scenario_that_processes_cannot_play_is_refused_by_its_switch(site):
    site.check(Scenario(capacity=Capacity(insufficient=1.0)))
    with pytest.raises(InvalidRequest, match="container.user=7.*'namespace'"):
        site.check(Scenario(container=Container(user=7)))


def plain(count=1):
    return number_hosts(("homogeneousCluster", "ml.m5.large", count))


def job(**fields):
    return JobSpec(**{"name": "job", "groups": plain(), "command": ("true",), **fields})


def files(host, base, inside, **fields):
    return write_files(job(**fields), host, base, inside)


def written(path):
    return json.loads(path.read_text())


def test_a_plain_job_has_one_group_and_its_hosts_stand_in_lexicographic_order(tmp_path):
    config = written(files("algo-2", tmp_path, Path("/opt/ml"), groups=plain(11)).resource_config)
    hosts = ["algo-1", "algo-10", "algo-11", *(f"algo-{i}" for i in range(2, 10))]
    assert config == {
        "current_host": "algo-2",
        "current_instance_type": "ml.m5.large",
        "current_group_name": "homogeneousCluster",
        "hosts": hosts,
        "instance_groups": [
            {
                "instance_group_name": "homogeneousCluster",
                "instance_type": "ml.m5.large",
                "hosts": hosts,
            }
        ],
        "network_interface_name": "eth0",
    }


def test_the_channels_that_a_host_gets_are_listed(tmp_path):
    channels = (
        Channel(name="a", source=tmp_path, content_type="text/csv"),
        Channel(name="b", source=tmp_path, distribution="ShardedByS3Key"),
        Channel(name="c", source=tmp_path, groups=("elsewhere",)),
    )
    paths = files("algo-1", tmp_path, tmp_path, channels=channels)
    config = written(paths.input_data_config)
    common = {"TrainingInputMode": "File", "RecordWrapperType": "None"}
    assert config == {
        "a": {"S3DistributionType": "FullyReplicated", "ContentType": "text/csv", **common},
        "b": {"S3DistributionType": "ShardedByS3Key", **common},
    }
    assert paths.channel("b").is_dir()


def test_the_undocumented_files_that_scripts_open_hold_what_they_are_named_for(tmp_path):
    metrics = [{"Name": "loss", "Regex": "loss=(.*)"}]
    request = {
        "TrainingJobName": "job",
        "AlgorithmSpecification": {"TrainingImage": "i", "MetricDefinitions": metrics},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    }
    paths = files("algo-2", tmp_path, Path("/opt/ml"), groups=plain(3), description=request)
    config = tmp_path / "input" / "config"
    assert written(config / "trainingjobconfig.json") == request
    assert written(config / "metric-definition-regex.json") == metrics
    assert written(config / "upstreamoutputdataconfig.json") == {"S3OutputPath": "s3://bucket/out"}
    assert written(config / "init-config.json")["hostConfig"] == {"clusterSize": 3, "hostNumber": 1}
    assert paths.resource_config.exists()


def test_metric_definitions_are_an_empty_list_in_a_job_without_any(tmp_path):
    files("algo-1", tmp_path, Path("/opt/ml"))
    assert written(tmp_path / "input" / "config" / "metric-definition-regex.json") == []


def test_a_processing_job_has_its_own_layout(tmp_path):
    described = {"ProcessingJobName": "job"}
    outputs = {"chart": PurePosixPath("processing/chart")}
    paths = files(
        "algo-2",
        tmp_path,
        Path("/opt/ml"),
        groups=plain(2),
        api=PROCESSING,
        description=described,
        outputs=outputs,
    )
    assert written(tmp_path / "config" / "resourceconfig.json") == {
        "current_host": "algo-2",
        "hosts": ["algo-1", "algo-2"],
    }
    assert written(tmp_path / "config" / "processingjobconfig.json") == described
    assert paths.model == tmp_path / "processing" / "output" / "result"
    assert (tmp_path / "processing" / "chart").is_dir()
    assert not (tmp_path / "input").exists()
