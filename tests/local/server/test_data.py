"""What jobs read and what they leave: channels, checkpoints, artifacts."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.support.sagemaker_server import BUCKET, channel, until

LIST = "cd /opt/ml/input/data; find . -type f | sort"


def lines_of(server, name, host="algo-1"):
    assert server.ended(name)["TrainingJobStatus"] == "Completed", server.describe(name)
    return [text for at, text in server.lines(name) if at == host]


def test_a_replicated_channel_is_whole_and_writable_on_every_instance(server):
    for name in ("a", "deep/b"):
        server.put(f"whole/{name}", name.encode())
    server.put("whole/folder/")
    script = f"{LIST}; cat c/deep/b; echo; hostname > c/a && cat c/a >/dev/null && echo written"
    server.train(
        "whole",
        script,
        count=2,
        InputDataConfig=[channel("c", f"s3://{BUCKET}/whole", InputMode="FastFile")],
    )
    for host in ("algo-1", "algo-2"):
        assert lines_of(server, "whole", host) == ["./c/a", "./c/deep/b", "deep/b", "written"]
    assert server.get("whole/a") == b"a"


def test_a_manifest_lists_its_objects(server):
    server.put("listed/x/1", b"1")
    server.put("listed/2", b"2")
    server.put("listed/3", b"3")
    server.put("manifest", json.dumps([{"prefix": f"s3://{BUCKET}/listed/"}, "x/1", "2"]).encode())
    source = {"S3DataType": "ManifestFile"}
    server.train(
        "manifest", LIST, InputDataConfig=[channel("c", f"s3://{BUCKET}/manifest", source=source)]
    )
    assert lines_of(server, "manifest") == ["./c/2", "./c/x/1"]


def test_a_manifest_lists_files_of_this_machine_which_the_job_gets_copies_of(server, tmp_path):
    for name in ("1", "sub/2", "3"):
        path = tmp_path / "my data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    manifest = tmp_path / "some.manifest"
    manifest.write_text(
        json.dumps([{"prefix": (tmp_path / "my data").as_uri() + "/"}, "sub/2", "1"])
    )
    source = {"S3DataType": "ManifestFile"}
    script = f"{LIST}; echo changed > c/1"
    server.train("copied", script, InputDataConfig=[channel("c", manifest.as_uri(), source=source)])
    assert lines_of(server, "copied") == ["./c/1", "./c/sub/2"]
    assert (tmp_path / "my data" / "1").read_text() == "1"


def test_a_key_that_leads_out_of_the_channel_is_refused(server):
    server.put("evil/../../../x")
    server.train("evil", LIST, InputDataConfig=[channel("c", f"s3://{BUCKET}/evil/")])
    assert "leads out of its channel" in server.ended("evil")["FailureReason"]


def test_a_2_gb_file_is_linked_not_copied(server, tmp_path):
    matrix = tmp_path / "matrix.npy"
    with matrix.open("wb") as file:
        file.truncate(2 << 30)

    def measures():
        numbers = dict(
            line.split(":")
            for line in Path(f"/proc/{server.process.pid}/io").read_text().splitlines()
        )
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        peak = next(
            int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")
        )
        return int(numbers["rchar"]), peak * 1024

    read_before, peak_before = measures()
    server.train(
        "large",
        "stat -L -c '%s %i' /opt/ml/input/data/c/matrix.npy",
        count=2,
        InputDataConfig=[channel("c", matrix.as_uri())],
    )
    lines = lines_of(server, "large", "algo-2")
    read, peak = measures()
    assert lines == [f"{2 << 30} {matrix.stat().st_ino}"]
    assert read - read_before < 20 << 20
    assert peak - peak_before < 50 << 20


def test_hyperparameters_environment_and_channels_are_told(server):
    server.put("told/x")
    script = (
        "cd /opt/ml/input/config; cat hyperparameters.json inputdataconfig.json;"
        'echo "$GREETING $TRAINING_JOB_NAME $AWS_REGION"'
    )
    server.train(
        "told",
        script,
        InputDataConfig=[channel("c", f"s3://{BUCKET}/told/", ContentType="text/csv")],
        HyperParameters={"rate": "0.1", "quote": "it's"},
        Environment={"GREETING": "hello  world"},
    )
    text = "\n".join(lines_of(server, "told"))
    assert '"rate": "0.1"' in text
    assert '"quote": "it\'s"' in text
    assert '"ContentType": "text/csv"' in text
    assert text.endswith("hello  world told us-east-1")


def test_instance_groups_have_their_own_channels(server):
    server.put("grouped/x")
    groups = [
        {"InstanceGroupName": "head", "InstanceType": "ml.m5.large", "InstanceCount": 1},
        {"InstanceGroupName": "work", "InstanceType": "ml.c5.xlarge", "InstanceCount": 2},
    ]
    server.train(
        "groups",
        f"{LIST}; grep current_instance_type /opt/ml/input/config/resourceconfig.json",
        ResourceConfig={"InstanceGroups": groups, "VolumeSizeInGB": 1},
        InputDataConfig=[
            channel("c", f"s3://{BUCKET}/grouped/", source={"InstanceGroupNames": ["work"]})
        ],
    )
    assert [line.strip() for line in lines_of(server, "groups", "algo-1")] == [
        '"current_instance_type": "ml.m5.large",'
    ]
    assert [line.strip() for line in lines_of(server, "groups", "algo-3")] == [
        "./c/x",
        '"current_instance_type": "ml.c5.xlarge",',
    ]


def members(content):
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {item.name: tar.extractfile(item).read().decode() for item in tar if item.isfile()}


def test_model_and_output_of_all_instances_are_archived(server):
    script = (
        'host=$(sed -n \'s/.*current_host": "\\(.*\\)",/\\1/p\' /opt/ml/input/config/resourceconfig.json);'
        "mkdir /opt/ml/model/sub; echo $host > /opt/ml/model/sub/$host; echo $host > /opt/ml/model/same;"
        "echo data > /opt/ml/output/data/$host"
    )
    server.train("archived", script, count=2)
    job = server.ended("archived")
    assert job["ModelArtifacts"] == {
        "S3ModelArtifacts": f"s3://{BUCKET}/out/archived/output/model.tar.gz"
    }
    model = members(server.get("out/archived/output/model.tar.gz"))
    # Of whichever instance came last.
    assert model.pop("same") in ("algo-1\n", "algo-2\n")
    assert model == {"sub/algo-1": "algo-1\n", "sub/algo-2": "algo-2\n"}
    assert sorted(members(server.get("out/archived/output/output.tar.gz"))) == ["algo-1", "algo-2"]


def test_uncompressed_artifacts_are_files_below_the_prefix(server):
    script = "cd /opt/ml; mkdir model/a; echo 1 > model/a/b; echo 2 > output/data/c; touch model/x.partial"
    target = {"S3OutputPath": f"s3://{BUCKET}/plain/", "CompressionType": "NONE"}
    server.train("uncompressed", script, OutputDataConfig=target)
    job = server.ended("uncompressed")
    assert job["ModelArtifacts"] == {
        "S3ModelArtifacts": f"s3://{BUCKET}/plain/uncompressed/output/model"
    }
    assert server.keys("plain/uncompressed/output/") == ["data/c", "model/a/b", "model/x.partial"]


@pytest.mark.parametrize("compression", ["NONE", "GZIP"])
def test_artifacts_are_moved_into_a_folder_of_this_machine(server, compression):
    name = f"to-files-{compression}"
    place = server.home.parent / name
    script = "echo 1 > /opt/ml/model/a; stat -c %i /opt/ml/model/a"
    server.train(
        name,
        script,
        OutputDataConfig={"S3OutputPath": place.as_uri(), "CompressionType": compression},
    )
    inode = lines_of(server, name)[0]
    below = place / name / "output"
    if compression == "NONE":
        assert str((below / "model" / "a").stat().st_ino) == inode
    else:
        assert members((below / "model.tar.gz").read_bytes()) == {"a": "1\n"}


def test_what_a_failed_job_left_as_output_is_kept_and_its_model_is_not(server):
    script = "echo 1 > /opt/ml/model/a; echo why > /opt/ml/output/data/why; exit 1"
    target = {"S3OutputPath": f"s3://{BUCKET}/failed", "CompressionType": "NONE"}
    server.train("left", script, OutputDataConfig=target)
    server.ended("left")
    assert server.keys("failed/left/output/") == ["data/why"]


@pytest.mark.parametrize("where", ["s3", "file"])
def test_checkpoints_come_back_are_synced_while_it_runs_and_deleted(server, tmp_path, where):
    name = f"kept-{where}"
    uri = f"s3://{BUCKET}/{name}" if where == "s3" else (tmp_path / "kept").as_uri()

    def kept():
        if where == "s3":
            return sorted(server.keys(f"{name}/"))
        return sorted(
            path.relative_to(tmp_path / "kept").as_posix()
            for path in (tmp_path / "kept").rglob("*")
        )

    if where == "s3":
        server.put(f"{name}/old", b"old")
    else:
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "old").write_text("old")
    script = (
        "cd /opt/ml/checkpoints; cat old; echo; rm old; echo 1 > one; echo written;"
        "until [ -e go ]; do sleep 0.05; done; rm one go; echo 2 > two"
    )
    server.train(name, script, CheckpointConfig={"S3Uri": uri})
    until(lambda: kept() == ["one"])
    assert server.describe(name)["SecondaryStatus"] == "Training"
    (
        server.home
        / "jobs"
        / "training"
        / name
        / "work"
        / "1"
        / "algo-1"
        / "ml"
        / "checkpoints"
        / "go"
    ).touch()
    assert lines_of(server, name) == ["old", "written"]
    assert kept() == ["two"]
