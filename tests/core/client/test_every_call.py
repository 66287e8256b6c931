"""All that the client does on AWS, once, and beside it the policies: a line for every call, a call for every line."""

import pytest
from moto import mock_aws

import raysm.core.client
from raysm.core.client.costs.prices import fetch_prices
from raysm.core.client.job.handle import attach
from raysm.core.client.job.listing import jobs
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import SMALL, Storage
from raysm.core.client.submit import submit
from raysm.core.request import Cluster, MetricDefinition, Security
from raysm.errors import ServiceError
from raysm.features.account.case import Intent
from raysm.features.dashboard.tunnel.access import switch_remote_debugging
from raysm.features.dashboard.tunnel.plugin import PluginAccess
from raysm.features.grid.batch_job.controller_job import ControllerJob, send
from raysm.features.grid.client.handle import GridHandle
from raysm.features.grid.region import Region
from raysm.features.grid.sources.databases import database_of
from raysm.features.script.request import Script
from tests.core.client.costs.test_prices import Pricing, product
from tests.features.dashboard.tunnel.test_plugin import Ssm
from tests.support import aws_account
from tests.support.client_jobs import M5, NOW_MS
from tests.support.handed_over_grids import ROLE, HandedOver
from tests.support.homes import in_home
from tests.support.permissions import covered
from tests.support.sagemaker import (
    IMAGE,
    OF_INSTANCES,
    REGION,
    SESSION,
    ScriptedClient,
    aws,
    fake_aws,
    operations_of,
    refusal,
)
from tests.support.scripted_controllers import ScriptedControllers
from tests.support.tuning import SageMaker


def everything(remote, script, folder):
    """Do what raysm can do with jobs: send, list, follow, stop, go on, bring back, remove."""
    (folder / "in").mkdir()
    (folder / "in" / "large.bin").write_bytes(b"x" * (SMALL + 1))
    metrics = (MetricDefinition("loss", "loss=(.*)"),)
    job = submit(
        Script(str(script)),
        cluster=M5,
        on=remote.service,
        inputs={"in": folder / "in"},
        metrics=metrics,
        name="a",
    )
    submit(
        Script(str(script)),
        cluster=M5,
        on=remote.service,
        inputs={"in": folder / "in"},
        if_done="skip",
        name="a",
    )
    processing = submit(
        Script(str(script)), cluster=M5, on=remote.service, kind="processing", name="p"
    )
    processing.stop()
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = "Training"
    switch_remote_debugging(job.chain, enabled=True)
    remote.write_log(job.name, "algo-1", [(NOW_MS, "hello")])
    remote.sagemaker.jobs[job.name]["answer"]["TrainingStartTime"] = job.describe().created
    list(job.metrics())
    Region(remote.service, lambda task, attempt: None).rates([job.name], "loss")
    job.stop()
    list(job.lines())
    storage = Storage(remote.service)
    storage.write(f"{job.outputs}/model/a", b"1")
    storage.size(f"{job.outputs}/model/a")
    for item in storage.folder(f"{job.outputs}/model"):
        storage.bring(item, folder / "out")
    storage.read(f"{job.outputs}/model/a")
    storage.remove(f"{job.outputs}/model")
    list(jobs(remote.service, limit=5))
    assert attach(job.name, remote.service).tags


def interrupted(remote, folder):
    """Lose an upload of parts: what is there of it is given up."""

    def lose(**request):
        raise refusal("AccessDenied", "no", "UploadPart")

    remote.s3.meta.events.register("before-call.s3.UploadPart", lose)
    try:
        with pytest.raises(ServiceError):
            Storage(remote.service).upload(
                folder / "in" / "large.bin", f"{remote.service.places.root}/lost"
            )
    finally:
        remote.s3.meta.events.unregister("before-call.s3.UploadPart", lose)


def doctors_calls():
    with aws_account.account() as account:
        subnet, group = account.vpc()
        key = account.kms.create_key()["KeyMetadata"]["KeyId"]
        security = Security(subnets=(subnet,), security_groups=(group,), output_kms_key=key)
        account.s3.put_object(Bucket=aws_account.BUCKET, Key="x", Body=b"")
        inputs = {"in": raysm.Input(f"s3://{aws_account.BUCKET}/x")}
        account.findings(
            Intent(cluster=Cluster("ml.c5.xlarge", count=2), security=security, inputs=inputs)
        )
        return account.operations()


def prices_calls():
    client = ScriptedClient(Pricing(product()), [])
    fetch_prices(Service(aws(), clients=lambda name: client), "us-east-1")
    return operations_of("pricing", client)


def tuning_calls(remote, script):
    """Have the service tune, look at it, and stop it; return what was called."""
    client = ScriptedClient(SageMaker(["InProgress"]), [])
    service = Service(
        aws(), clients=lambda name: client if name == "sagemaker" else remote.clients[name]
    )
    sweep = raysm.Sweep(str(script), space={"lr": raysm.uniform(0, 1)}, metric="loss", mode="min")
    tuning = raysm.tune(sweep, on=service, cluster=M5)
    assert tuning.trials == []
    tuning.stop()
    assert tuning.status == "InProgress"
    return operations_of("sagemaker", client)


def controller_calls(remote, script):
    """Have a job of AWS Batch run a grid, and look at it; return what was called."""
    batch = ScriptedControllers()
    client = ScriptedClient(batch, [])
    service = Service(
        aws(), clients=lambda name: client if name == "batch" else remote.clients[name]
    )
    laptop = HandedOver(remote, script.parent)
    image = ControllerJob(job_queue="controllers", job_definition="own", image=IMAGE, job_role=ROLE)
    sent = send(laptop.planned(), image, lambda target: service)
    assert sent.is_open(service)
    called = operations_of("batch", client)
    # Once the job has ended, the next command takes the grid back.
    batch.status = "FAILED"
    GridHandle("drives", service).retry()
    return called | {call for call in remote.operations() if call.startswith("ssm:")}


def sessions_calls(folder):
    """Open a tunnel and have the plugin fail; return what was called."""
    plugin = folder / "session-manager-plugin"
    plugin.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.2.650.0\n')
    plugin.chmod(0o755)
    client = ScriptedClient(Ssm(), [])
    access = PluginAccess(
        Service(aws(), clients=lambda name: client), which=lambda name: str(plugin)
    )
    with pytest.raises(ServiceError, match="opened no port"):
        access.open_tunnel("job", "algo-1", 8265, 0)
    # The plugin itself resumes a session.
    return operations_of("ssm", client) | {"ssm:ResumeSession"}


def database_calls():
    """Read the address of a grid's database in a secret; return what was called."""
    with mock_aws(), pytest.MonkeyPatch.context() as patched:
        client = ScriptedClient(SESSION.client("secretsmanager", region_name=REGION), [])
        patched.setattr("boto3.client", lambda name, region_name: client)
        secret = client.create_secret(Name="rows", SecretString="sqlite:///rows.db")["ARN"]
        client.calls.clear()
        assert database_of(secret).name == "sqlite:///rows.db"
    return operations_of("secretsmanager", client)


def test_every_line_of_the_policies_is_for_a_call_and_every_call_has_a_line(script, tmp_path):
    with fake_aws() as remote:
        everything(remote, script, tmp_path)
        interrupted(remote, tmp_path)
        calls = remote.operations() - OF_INSTANCES | tuning_calls(remote, script)
        calls |= doctors_calls() | prices_calls() | sessions_calls(tmp_path)
        with in_home(tmp_path / "home"):
            calls |= controller_calls(remote, script)
        calls |= database_calls()
    assert calls == covered()
