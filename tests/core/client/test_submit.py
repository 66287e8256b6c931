import json
import os
import re
import subprocess
import sys

import cloudpickle
import pytest

from raysm.core.client.job import records
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.submit import prepare, submit
from raysm.core.client.targets.connection import Bucket
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.protocol import payload
from raysm.core.protocol.result import FAILURE
from raysm.core.request import Cluster, Input, Limits, Local, Security
from raysm.errors import InvalidRequest, JobFailed, JobNotFound
from raysm.features.script.client import Function, remote
from raysm.features.script.request import Script
from raysm.features.similarity.request import Similarity
from raysm.features.sweep.client import Sweep
from raysm.features.sweep.space import choice
from raysm.features.training.client import DataParallel
from raysm.features.training.request import TorchScript
from tests.support.client_jobs import COMPLETED, leave
from tests.support.sagemaker import REGION, fake_aws

M5 = Cluster("ml.m5.large")


def sent(fake, index=-1):
    return fake.sagemaker.sent[index]


def payload_of(fake, call, folder):
    """Bring the payload of a job here as an instance would have it."""
    storage = Storage(fake.service)
    channel = next(item for item in call["InputDataConfig"] if item["ChannelName"] == "raysm")
    uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
    for item in storage.folder(uri):
        storage.bring(item, folder)
    return payload.load(folder)


def test_without_an_image_aws_own_is_taken_and_said(script):
    with fake_aws(image=None) as fake:
        prepared = prepare(Script(str(script)), cluster=Cluster("ml.g5.xlarge"), on=fake.service)
        prepared.send()
        image = sent(fake)["AlgorithmSpecification"]["TrainingImage"]
    assert re.fullmatch(
        rf"763104351884\.dkr\.ecr\.{REGION}\.amazonaws\.com/pytorch:\d\.\d+-cu\d+-\S+", image
    )
    assert prepared.image.startswith(f"{image} (AWS's PyTorch ")


@pytest.mark.parametrize("workload", [Function(sum, [1]), DataParallel(sum)], ids=repr)
def test_a_pickle_that_the_image_cannot_read_is_refused_while_nothing_is_sent(workload):
    other = "3.12" if PYTHON_VERSION != "3.12" else "3.13"
    with fake_aws(python=other) as fake:
        with pytest.raises(InvalidRequest, match=f"Python {PYTHON_VERSION}, .* Python {other}"):
            submit(workload, cluster=M5, on=fake.service)
        assert fake.s3.calls == []


def test_the_payload_arrives_whole_and_says_what_was_asked_for(remote, script, tmp_path):
    job = submit(
        Script(str(script), args=["--lr", "1"]), cluster=M5, on=remote.service, requirements=["six"]
    )
    found = payload_of(remote, sent(remote), tmp_path / "payload")
    assert found.request.name == job.name
    assert found.request.workload == Script("train.py", args=("--lr", "1"))
    assert (found.source / "train.py").read_text() == script.read_text()
    assert len(found.token()) == 64


def test_a_job_that_missed_a_module_beside_its_script_says_how_to_send_it(remote, script):
    (script.parent / "plugin.py").touch()
    job = submit(Script(str(script)), cluster=M5, on=remote.service)
    remote.sagemaker.end(
        job.name, "Failed", FailureReason="ModuleNotFoundError: No module named 'plugin'"
    )
    assert "plugin.py lies beside train.py" in str(job.exception())
    assert f"--source-dir {script.parent}" in str(job.exception())


def test_a_task_without_a_name_is_named_by_its_workload(remote, tmp_path):
    script = tmp_path / "my_train.v2.py"
    script.write_text("")
    for workload, task in ((Script(str(script)), "my-train-v2"), (Function(sum, [1]), "sum")):
        assert prepare(workload, cluster=M5, on=remote.service).task == task


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cluster": None}, "cluster"),
        ({"if_done": "maybe"}, "'maybe'"),
        ({"workload": dict}, r"raysm\.Function\("),
        ({"workload": 3}, "workload .*got 3"),
        ({"workload": remote(cluster=M5)(print)}, r"its own submit"),
        ({"workload": Script("no/such.py")}, r"such\.py"),
        ({"requirements": ["requirements.txt"]}, r"requirements=Path\("),
        ({"requirements": ["six"], "security": Security(isolation=True)}, "wheels="),
        ({"kind": "processing", "resume": True}, "checkpoints"),
        ({"inputs": {"x": "job:/data"}}, "job:NAME/data"),
        ({"checkpoint_uri": "file:///x"}, "checkpoint_uri='file:///x'"),
        ({"inputs": {"x": Input("s3://b/x", groups=("g",))}}, "group 'g'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_is_refused_and_nothing_is_uploaded(remote, script, fields, words):
    fields = {"cluster": M5, "on": remote.service, "workload": Script(str(script))} | fields
    with pytest.raises(InvalidRequest, match=words):
        submit(fields.pop("workload"), **fields)
    assert remote.s3.calls == []


def test_isolation_with_an_image_of_aws_needs_rays_wheel(script, tmp_path):
    wheel = tmp_path / "ray-2.60.0-cp312-cp312-manylinux2014_x86_64.whl"
    wheel.write_text("")
    options = {"cluster": M5, "security": Security(isolation=True)}
    with fake_aws(image=None) as aws:
        with pytest.raises(InvalidRequest, match=r"security\.isolation.*raysm image"):
            submit(Script(str(script)), on=aws.service, **options)
        assert aws.s3.calls == []
        assert submit(Script(str(script)), on=aws.service, wheels=[wheel], **options).name


def test_two_wheels_of_one_name_are_refused_before_anything_is_uploaded(remote, script, tmp_path):
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w-1-py3-none-any.whl").write_text(folder)
    wheels = [tmp_path / folder / "w-1-py3-none-any.whl" for folder in ("old", "new")]
    with pytest.raises(InvalidRequest, match=r"'w-1-py3-none-any\.whl'.*old.*new"):
        submit(Script(str(script)), cluster=M5, on=remote.service, wheels=wheels)
    assert remote.s3.calls == []


# Re-runs


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "src"
    root.mkdir()
    (root / "main.py").write_text("import other")
    (root / "other.py").write_text("")
    return root


def run(fake, folder, **fields):
    fields = {
        "name": "task",
        "cluster": M5 if not isinstance(fake.service.target, Local) else None,
    } | fields
    return submit(
        Script("main.py", source_dir=str(folder)), on=fake.service, if_done="skip", **fields
    )


@pytest.fixture(params=["remote", "local"])
def either(request):
    return request.getfixturevalue(request.param)


def test_a_finished_job_that_did_the_same_is_returned_instead_of_a_new_one(either, folder):
    first = run(either, folder)
    either.sagemaker.end(first.name, "Completed")
    assert run(either, folder) == first
    assert len(either.sagemaker.sent) == 1


def test_a_record_that_names_a_job_of_another_task_or_request_returns_none(remote, folder):
    first = run(remote, folder)
    remote.sagemaker.end(first.name, "Failed")
    others = [run(remote, folder, name="other"), run(remote, folder, environment={"A": "1"})]
    storage = Storage(remote.service)
    records = remote.service.places.records("default", "task")
    written = storage.read(f"{records}/{first.name}.json").decode()
    for other in others:
        remote.sagemaker.end(other.name, "Completed")
        # Who may write to the bucket knows the digest, and writes the latest record of the task.
        storage.write(
            f"{records}/{other.name}.json", written.replace(first.name, other.name).encode()
        )
    assert run(remote, folder).name not in {first.name, *(other.name for other in others)}


@pytest.mark.parametrize("workload", [Similarity(top_k=1), Function(abs, -1)])
def test_one_whose_result_was_removed_is_run_anew(remote, tmp_path, workload):
    (tmp_path / "rows.csv").write_text("1,2\n3,4\n")

    def again():
        inputs = {"matrix": str(tmp_path / "rows.csv")}
        return submit(workload, cluster=M5, inputs=inputs, on=remote.service, if_done="skip")

    first = again()
    remote.sagemaker.end(first.name, "Completed")
    leave(remote, first, "model/file", b"content")
    assert again() == first
    Storage(remote.service).remove(f"{first.outputs}/model")
    assert again() != first


@pytest.mark.parametrize("status", ["Failed", "Stopped"])
def test_one_that_did_not_complete_is_run_anew(either, folder, status):
    first = run(either, folder)
    either.sagemaker.end(first.name, status)
    assert run(either, folder) != first


def test_whatever_the_result_depends_on_makes_a_new_run(either, folder):
    seen = {run(either, folder).name}
    (folder / "other.py").write_text("x = 1")
    for fields in (
        {},
        {"environment": {"A": "1"}},
        {"hyperparameters": {"a": "1"}},
        {"requirements": ["six"]},
    ):
        seen.add(run(either, folder, **fields).name)
    assert len(seen) == 5


def test_a_changed_module_beside_a_script_makes_a_new_run_if_the_script_imports_it(either, script):
    def again():
        cluster = None if isinstance(either.service.target, Local) else M5
        return submit(Script(str(script)), on=either.service, if_done="skip", cluster=cluster)

    script.write_text("import other")
    (script.parent / "other.py").write_text("x = 1")
    first = again()
    (script.parent / "unseen.py").write_text("")
    assert again() == first
    (script.parent / "other.py").write_text("x = 2")
    assert again() != first


def test_what_the_result_does_not_depend_on_makes_none(either, folder):
    first = run(either, folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").write_text("")
    assert run(either, folder, limits=Limits(max_runtime_s=100), tags={"a": "b"}) == first


def test_a_changed_object_makes_a_new_run(remote, folder):
    storage = Storage(remote.service)
    storage.ensure_bucket(Bucket(name="data"), REGION)
    storage.write("s3://data/x/1", b"1")
    inputs = {"x": "s3://data/x/"}
    first = run(remote, folder, inputs=inputs)
    assert run(remote, folder, inputs=inputs) == first
    storage.write("s3://data/x/1", b"2")
    assert run(remote, folder, inputs=inputs) != first


def test_a_changed_local_file_makes_a_new_run_on_aws_and_a_touched_one_does_not(
    remote, folder, tmp_path
):
    (tmp_path / "x.csv").write_text("1")
    inputs = {"x": tmp_path / "x.csv"}
    first = run(remote, folder, inputs=inputs)
    os.utime(tmp_path / "x.csv", (1, 1))
    assert run(remote, folder, inputs=inputs) == first
    (tmp_path / "x.csv").write_text("2")
    assert run(remote, folder, inputs=inputs) != first


def test_each_run_begins_with_an_empty_state_unless_it_resumes(either, folder, caplog):
    run(either, folder, resume=True)
    assert "task has no earlier job to resume" in caplog.text
    caplog.clear()
    second = run(either, folder, environment={"A": "1"})
    either.sagemaker.end(second.name, "Stopped")
    Storage(either.service).write(
        f"{sent(either)['CheckpointConfig']['S3Uri'].rstrip('/')}/algo-1/epoch", b"7"
    )
    run(either, folder, environment={"A": "2"}, resume=True)
    states = [call["CheckpointConfig"]["S3Uri"] for call in either.sagemaker.sent]
    assert states[0] != states[1]
    assert states[2] == states[1]
    assert not caplog.text


@pytest.fixture
def forged(either, folder):
    """Change the record of a job as someone can who may write to the bucket."""
    job = run(either, folder)
    either.sagemaker.end(job.name, "Stopped")

    def forge(content):
        uri = f"{either.service.places.records('default', 'task')}/{job.name}.json"
        record = json.loads(Storage(either.service).read(uri))
        Storage(either.service).write(uri, content(record))

    return forge


def test_a_record_leads_no_job_to_a_state_that_its_job_did_not_have(either, folder, forged):
    forged(lambda record: json.dumps({**record, "state": "s3://another/checkpoints"}).encode())
    with pytest.raises(InvalidRequest, match="s3://another/checkpoints") as caught:
        run(either, folder, environment={"A": "2"}, resume=True)
    assert "--checkpoint-uri s3://another/checkpoints" in caught.value.remedy


def test_a_state_that_a_user_chose_is_resumed(either, folder):
    first = run(either, folder, checkpoint_uri="s3://mine/checkpoints")
    either.sagemaker.end(first.name, "Stopped")
    run(either, folder, environment={"A": "2"}, resume=True)
    assert sent(either)["CheckpointConfig"]["S3Uri"] == "s3://mine/checkpoints"


@pytest.mark.parametrize(
    "content",
    [b"", b"[" * 100_000, b"{", b'{"job": "x"}', bytes(records.MAX_BYTES + 1)],
    ids=range(5),
)
def test_an_object_that_is_no_record_counts_as_none(either, folder, forged, content, caplog):
    forged(lambda record: content)
    run(either, folder, environment={"A": "2"}, resume=True)
    assert "task has no earlier job to resume" in caplog.text


def test_a_sweep_does_not_resume_the_trials_of_another(remote, script):
    def sweep(**changed):
        options = {
            "space": {"lr": choice([1, 2]), "q": choice([1])},
            "metric": "loss",
            "mode": "min",
        }
        return Sweep(str(script), **options | changed)

    first = submit(sweep(), cluster=M5, on=remote.service)
    remote.sagemaker.end(first.name, "Stopped")
    changes = r"space.lr was choice\(\[1, 2\]\), is choice\(\[1, 3\]\); mode was min, is max; seed was not given, is 7"
    changed = sweep(space={"lr": choice([1, 3]), "q": choice([1])}, mode="max", seed=7)
    with pytest.raises(InvalidRequest, match=f"{first.name}.*: {changes};"):
        prepare(changed, cluster=M5, on=remote.service, resume=True)
    prepare(sweep(trials=40), cluster=M5, on=remote.service, resume=True)
    prepare(changed, cluster=M5, on=remote.service)


@pytest.mark.parametrize(("environment", "is_warned"), [({"M": "1"}, False), ({"M": "2"}, True)])
def test_a_sweep_that_is_resumed_with_another_environment_warns(
    remote, script, caplog, environment, is_warned
):
    sweep = Sweep(str(script), space={"lr": choice([1, 2])}, metric="loss", mode="min")
    first = submit(sweep, cluster=M5, on=remote.service, environment={"M": "1"})
    remote.sagemaker.end(first.name, "Stopped")
    caplog.clear()
    submit(sweep, cluster=M5, on=remote.service, environment=environment, resume=True)
    assert (f"the environment of {first.name}" in caplog.text) == is_warned


def test_the_output_of_a_failed_job_is_refused_in_one_line(remote, script):
    job = submit(Function(abs, 21), cluster=M5, on=remote.service)
    remote.sagemaker.end(job.name, "Failed", FailureReason="KeyError: 'b'")
    failure = {"error_type": "KeyError", "message": "b", "remote_traceback": "Traceback\nline"}
    Storage(remote.service).write(f"{job.outputs}/data/{FAILURE}", json.dumps(failure).encode())
    message = f".*'near'.*{job.name}.*KeyError: b"
    with pytest.raises(JobFailed, match=f"^{message}$"):
        prepare(Script(str(script)), cluster=M5, on=remote.service, inputs={"near": "job:abs"})


def test_an_input_from_a_job_that_runs_says_that_it_waits_for_the_end_of_that_job(
    remote, script, caplog
):
    remote.sagemaker.script = [[*[{}] * 8, COMPLETED]]
    job = submit(Script(str(script)), name="slow", cluster=M5, on=remote.service)
    Storage(remote.service).write(f"{job.outputs}/model/x.npy", b"1")
    prepare(Script(str(script)), cluster=M5, on=remote.service, inputs={"meters": "job:slow"})
    assert caplog.messages == [f"the input 'meters' waits for the end of the job {job.name}"]


@pytest.mark.parametrize(
    ("count", "resume", "share_state", "is_warned"),
    [
        (2, True, False, True),
        (2, True, True, False),
        (2, False, False, False),
        (1, True, False, False),
    ],
)
def test_a_state_of_several_instances_that_is_resumed_warns_that_each_finds_only_its_own(
    remote, script, caplog, count, resume, share_state, is_warned
):
    workload = TorchScript(str(script), in_state=True, share_state=share_state)
    cluster = Cluster("ml.m5.large", count=count)
    prepare(workload, on=remote.service, cluster=cluster, resume=resume)
    assert ("load on rank 0 and broadcast" in caplog.text) is is_warned


def test_the_output_of_one_job_is_the_input_of_the_next(either, script):
    cluster = None if isinstance(either.service.target, Local) else M5
    first = submit(Script(str(script)), cluster=cluster, on=either.service)
    either.sagemaker.end(first.name, "Completed")
    for left in ("neither model nor data", "model/x.npy"):
        with pytest.raises(InvalidRequest, match=f"'job:train/data'.*{first.name} .*{left}$"):
            prepare(
                Script(str(script)),
                cluster=cluster,
                on=either.service,
                inputs={"train": "job:train/data"},
            )
        with pytest.raises(InvalidRequest, match=rf"^{first.name} .*model/none\.csv.*{left}$"):
            first.output("model/none.csv")
        Storage(either.service).write(f"{first.outputs}/model/x.npy", b"1")
    Storage(either.service).write(f"{first.outputs}/data/x.npy", b"1")
    with pytest.raises(JobNotFound, match="trian.* train"):
        prepare(
            Script(str(script)),
            cluster=cluster,
            on=either.service,
            inputs={"train": "job:trian/data"},
        )
    with pytest.raises(InvalidRequest, match=r'got a Job.*job\.output\("model"\)'):
        prepare(Script(str(script)), cluster=cluster, on=either.service, inputs={"train": first})
    with pytest.raises(InvalidRequest, match="'matrix'.*'matrx'"):
        prepare(
            Similarity(top_k=3),
            cluster=cluster,
            on=either.service,
            inputs={"matrx": "s3://b/x.npy"},
        )
    both = {"matrix": "s3://b/x.npy", "query": "s3://b/q.npy"}
    with pytest.raises(InvalidRequest, match="'query'.* queries"):
        prepare(Similarity(top_k=3), cluster=cluster, on=either.service, inputs=both)
    state = sent(either)["CheckpointConfig"]["S3Uri"].rstrip("/")
    Storage(either.service).write(f"{state}/algo-1/epoch.txt", b"7")
    for given, expected in (
        (first.output("data"), f"{first.outputs}/data"),
        (f"job:{first.name}/data", f"{first.outputs}/data"),
        ("job:train/data", f"{first.outputs}/data"),
        ("job:train/state", state),
    ):
        submit(
            Script(str(script)),
            name="next",
            cluster=cluster,
            on=either.service,
            inputs={"train": given},
        )
        uri = sent(either)["InputDataConfig"][1]["DataSource"]["S3DataSource"]["S3Uri"]
        assert uri.rstrip("/") == expected


# Functions


def double(x):
    return 2 * x


def test_a_function_travels_with_its_arguments_and_its_python(remote, tmp_path):
    job = submit(Function(double, 21), cluster=M5, on=remote.service)
    found = payload_of(remote, sent(remote), tmp_path / "payload")
    fn, args, kwargs = cloudpickle.loads(found.function.read_bytes())
    assert fn(*args, **kwargs) == 42
    assert job.tags["raysm:python"] == PYTHON_VERSION == found.request.workload.python


def test_a_function_of_a_notebook_brings_the_modules_of_its_folder(tmp_path):
    """A notebook's functions are of a ``__main__`` that has no file."""
    (tmp_path / "early.py").write_text("def one():\n    return 1\n")
    (tmp_path / "late.py").write_text("def two():\n    return 2\n")
    code = (
        "import base64, early; from raysm.features.script.client import Function\n"
        "def indirect():\n    from late import two\n    return two()\n"
        "def run():\n    return early.one() + indirect()\n"
        "f = Function(run); print(sorted(f.source().files), base64.b64encode(f.pickled()).decode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    files, pickled = done.stdout.rsplit(" ", 1)
    assert files == "['late.py']"
    (tmp_path / "early.py").unlink()
    read = f"import base64, pickle; f, _, _ = pickle.loads(base64.b64decode({pickled.strip()!r})); print(f())"
    done = subprocess.run(
        [sys.executable, "-c", read], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "3\n"


def test_the_users_own_modules_travel_by_value_and_installed_ones_do_not(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_helpers.py").write_text(
        "import json\ndef add(x):\n    return json.loads('1') + x\n"
    )
    (tmp_path / "own_main.py").write_text(
        "import own_helpers\ndef run(x):\n    return own_helpers.add(x)\n"
    )
    import own_main

    pickled = Function(own_main.run, 1).pickled()
    for name in ("own_main", "own_helpers"):
        del sys.modules[name]
        (tmp_path / f"{name}.py").unlink()
    fn, args, _ = cloudpickle.loads(pickled)
    assert fn(*args) == 2
    assert b"json" in pickled
    assert cloudpickle.list_registry_pickle_by_value() == set()
