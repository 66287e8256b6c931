"""A job for several regions: it runs in the first that has instances, and never in two."""

import pytest

from raysm.cli.main import main
from raysm.core.client.job.description import Status, read
from raysm.core.client.job.listing import find_running
from raysm.core.client.regions import InRegions, check_regions, why_no_capacity
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.submit import prepare, prepare_in_regions, submit
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Alternative, Cluster, Local, Security
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.script.request import Script
from tests.support.client_jobs import COMPLETED, M5
from tests.support.homes import in_home, serving
from tests.support.sagemaker import aws, refusal

NO_CAPACITY = {
    "TrainingJobStatus": "Failed",
    "SecondaryStatus": "Failed",
    "FailureReason": "CapacityError: Unable to provision requested ML compute capacity.",
}
TRAINS = {"SecondaryStatus": "Training"}

SCENARIO = """
speed = 100
[simulated]
run_s = 0.1
[regions.us-west-2.capacity]
insufficient = 1.0
[regions.ap-south-1.capacity]
start_delay_s = 60_000
[regions.eu-west-1.market.quotas]
"ml.m5.large" = 0
[regions.ca-central-1.capacity.instances]
"ml.m5.large" = 1
[regions.us-east-2.simulated]
failed = 1.0
failure = "AlgorithmError: RuntimeError: insufficient capacity of the cache, exit code: 1"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("regions") / "home"
    home.mkdir()
    (home / "scenario.toml").write_text(SCENARIO)
    with serving(home):
        yield Local(home=str(home), instance_kind="simulated")


def sent(server, script, regions, wait_s=None, **options):
    return submit(
        Script(str(script)),
        cluster=Cluster("ml.m5.large"),
        on=server,
        regions=regions,
        region_wait_s=wait_s,
        **options,
    )


def in_region(server, region):
    return Service(server.reaching((region,)))


def jobs_in(server, region):
    service = in_region(server, region)
    return [
        read(TRAINING, service.describe(TRAINING, each["TrainingJobName"]))
        for each in service.summaries(TRAINING, limit=100)
    ]


# -- on the embedded server


def test_a_job_runs_in_the_first_region_that_has_instances_and_quota_for_it(server, script, caplog):
    job = sent(server, script, ["us-west-2", "eu-west-1", "us-east-1"], name="moves")
    assert (job.service.region, job.instances) == ("us-east-1", (("ml.m5.large", 1),))
    assert job.wait() is Status.COMPLETED
    (first,) = [each for each in jobs_in(server, "us-west-2") if each.name.startswith("moves-")]
    assert first.reason.startswith("CapacityError")
    assert not jobs_in(server, "eu-west-1")
    assert "no instances in us-west-2: CapacityError" in caplog.text
    assert "no instances in eu-west-1: create_training_job: ResourceLimitExceeded" in caplog.text


def test_the_next_region_gets_the_job_when_the_one_that_waits_has_ended(server, script):
    job = sent(server, script, ["ap-south-1", "us-east-1"], 0.5, name="waits")
    (first,) = jobs_in(server, "ap-south-1")
    assert (first.status, first.billable_s or 0) == (Status.STOPPED, 0)
    assert first.ended <= job.describe().created
    storage = Storage(in_region(server, "ap-south-1"))
    assert not [
        item for item in storage.below("s3://raysm-local-ap-south-1/") if "/payloads/" in item.uri
    ]


def test_a_failure_of_the_program_moves_no_job(server, script):
    job = sent(server, script, ["us-east-2", "us-east-1"], name="fails")
    assert job.wait() is Status.FAILED
    assert job.service.region == "us-east-2"


def test_an_alternative_type_has_its_own_number_of_instances(server, script):
    cluster = Cluster("ml.m5.large", count=2, alternatives=[Alternative("ml.m5.4xlarge", 1)])
    job = submit(Script(str(script)), cluster=cluster, on=server.reaching(("ca-central-1",)))
    assert job.wait() is Status.COMPLETED
    assert job.instances == (("ml.m5.4xlarge", 1),)


def test_the_short_name_finds_the_job_in_its_region(server, script):
    job = sent(server, script, ["us-west-2", "ap-south-1"], name="found")
    assert find_running("found", Service(server)).name == job.name
    assert job.stop() is Status.STOPPED
    # The last job of the name, though another region has one too.
    assert find_running("found", Service(server), told=lambda job: None).name == job.name


def test_if_no_region_takes_the_job_the_error_says_why_for_each(server, script):
    with pytest.raises(ServiceError, match="us-west-2: CapacityError.*eu-west-1: .*ResourceLimit"):
        sent(server, script, ["us-west-2", "eu-west-1"])


def test_data_of_another_region_are_refused_before_anything_is_sent(server, script):
    there = in_region(server, "us-east-1")
    there.client("s3").create_bucket(Bucket="drives-us")
    with pytest.raises(
        InvalidRequest, match="'train', s3://drives-us/x, is in us-east-1"
    ) as raised:
        sent(server, script, ["us-east-1", "sa-east-1"], inputs={"train": "s3://drives-us/x"})
    assert "leave sa-east-1 out" in raised.value.remedy
    assert not jobs_in(server, "sa-east-1")


def test_the_command_says_where_the_job_runs_and_ran(server, script, capsys, caplog):
    with in_home(server.home):
        asked = ["run", str(script), "--instance-kind", "simulated", "--name", "command"]
        assert (
            main([*asked, "--regions", "us-west-2,us-east-1", "--instance-type", "ml.m5.large"])
            == 0
        )
    assert "no instances in us-west-2: CapacityError" in caplog.text
    said = capsys.readouterr().out
    assert "region us-east-1" in said
    assert "ran on 1 x ml.m5.large in us-east-1" in said


def test_a_time_to_wait_without_regions_is_refused(server, script, capsys):
    with in_home(server.home):
        assert main(["run", str(script), "--region-wait", "5m"]) != 0
    assert "--region-wait belongs to --regions" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["scale", "1", "--", "run"], ["tune"]])
def test_a_command_of_several_jobs_refuses_regions(server, script, capsys, words):
    space = (
        ["--space", "lr=choice:1,2", "--metric", "loss", "--mode", "min"] if "tune" in words else []
    )
    with in_home(server.home):
        assert main([*words, str(script), "--regions", "us-east-1,us-west-2", *space]) != 0
    assert "--regions" in capsys.readouterr().err


# -- on a service that does what the test says


def choice(remote, script, wait_s=60.0):
    ready = [prepare(Script(str(script)), cluster=M5, on=remote.service) for _ in range(2)]
    return InRegions(ready, wait_s)


def test_a_job_without_capacity_is_followed_by_one_and_no_more(remote, script):
    remote.sagemaker.script = [[{}, NO_CAPACITY], []]
    asked = choice(remote, script)
    assert asked.send().name == asked.prepared[1].request.name
    assert len(remote.sagemaker.sent) == 2


@pytest.mark.parametrize(
    "changes",
    [
        TRAINS,
        COMPLETED,
        {"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"},
        {"TrainingJobStatus": "Stopping", "SecondaryStatus": "Stopping"},
        {**NO_CAPACITY, "FailureReason": "ClientError: the image does not exist"},
    ],
    ids=["trains", "completed", "stopped by a user", "being stopped", "another failure"],
)
def test_a_job_that_has_instances_or_ends_for_another_reason_stays(remote, script, changes):
    remote.sagemaker.script = [[{}, changes]]
    asked = choice(remote, script)
    assert asked.send().name == asked.prepared[0].request.name
    assert (len(remote.sagemaker.sent), asked.is_leaving) == (1, False)


def test_a_job_that_prepares_its_instances_is_not_stopped(remote, script):
    preparing = {"SecondaryStatus": "PreparingTrainingStack"}
    remote.sagemaker.script = [[preparing, {}, {}, TRAINS]]
    choice(remote, script, wait_s=0.0).send()
    assert remote.sagemaker.stopped == []


def test_a_job_that_ends_by_itself_while_it_is_stopped_is_the_result(remote, script):
    def end_first(TrainingJobName):  # noqa: N803
        remote.sagemaker.end(TrainingJobName, "Completed")

    remote.sagemaker.stop_training_job = end_first
    asked = choice(remote, script, wait_s=0.0)
    assert asked.send().status is Status.COMPLETED
    assert len(remote.sagemaker.sent) == 1


def test_what_a_job_cost_that_started_while_it_was_stopped_is_said(remote, script, caplog):
    def end_late(TrainingJobName):  # noqa: N803
        remote.sagemaker.end(TrainingJobName, "Stopped", BillableTimeInSeconds=31)

    remote.sagemaker.stop_training_job = end_late
    choice(remote, script, wait_s=0.0).send()
    assert "when it was stopped: 31 s are billed" in caplog.text
    assert len(remote.sagemaker.sent) == 2


def test_a_job_that_cannot_be_stopped_may_start_so_no_other_is_sent(remote, script):
    remote.fail("stop_training_job", refusal("AccessDeniedException", "not yours"))
    with pytest.raises(ServiceError, match="may still start, so no other job was sent.*not yours"):
        choice(remote, script, wait_s=0.0).send()
    assert len(remote.sagemaker.sent) == 1


def test_a_create_that_may_have_succeeded_is_no_reason_to_send_another(remote, script):
    remote.fail("create_training_job", refusal("InternalFailure", "who knows"))
    with pytest.raises(ServiceError, match="who knows"):
        choice(remote, script).send()
    assert remote.sagemaker.sent == []


def test_ctrl_c_while_a_job_waits_for_instances_sends_no_other(remote, script):
    asked = choice(remote, script)
    remote.fail("describe_training_job", KeyboardInterrupt(), after=1)
    with pytest.raises(KeyboardInterrupt):
        asked.send()
    assert (len(remote.sagemaker.sent), asked.current) == (1, asked.prepared[0])


# -- what is refused


def test_fewer_than_two_regions_and_others_than_the_targets_own_are_refused(remote):
    with pytest.raises(InvalidRequest, match="at least two"):
        check_regions(remote.service, ["us-east-1"], None)
    with pytest.raises(InvalidRequest, match="eu-west-1.*us-west-2"):
        check_regions(remote.service, ["us-east-1", "us-west-2"], None)
    with pytest.raises(InvalidRequest, match="region_wait_s.*-1"):
        check_regions(remote.service, ["us-east-1", "eu-west-1"], -1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resume": True}, "resume and regions"),
        ({"kind": "processing"}, "for Training jobs"),
        ({"security": Security(subnets=("subnet-1",), security_groups=("sg-1",))}, "network"),
        (
            {
                "cluster": Cluster(
                    "ml.m5.large",
                    training_plan="arn:aws:sagemaker:us-west-2:123456789012:training-plan/p",
                )
            },
            "the training plan is in us-west-2",
        ),
    ],
)
def test_what_only_one_region_has_is_refused(server, script, options, message):
    with pytest.raises(InvalidRequest, match=message):
        prepare_in_regions(
            Script(str(script)), on=server, regions=["us-east-1", "sa-east-1"], **options
        )


def test_an_image_of_another_region_is_refused(remote, script):
    service = remote.service
    image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
    ready = prepare(Script(str(script)), cluster=M5, on=service.at(aws(image=image)))
    with pytest.raises(InvalidRequest, match="mine:1 is in us-east-1"):
        InRegions([ready, ready])


def test_a_way_to_send_that_cannot_change_the_region_refuses_regions(remote, script):
    with pytest.raises(InvalidRequest, match="raysm.submit"):
        prepare(Script(str(script)), on=remote.service, regions=["us-east-1", "us-west-2"])


@pytest.mark.parametrize(
    ("phases", "answer", "lacks"),
    [
        (["Starting", "Failed"], NO_CAPACITY, True),
        (
            ["Starting", "Pending", "Stopped"],
            {"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxWaitTimeExceeded"},
            True,
        ),
        (["Starting", "Downloading", "Training", "Failed"], NO_CAPACITY, False),
        (
            ["Starting", "Training", "Interrupted", "MaxWaitTimeExceeded"],
            {"TrainingJobStatus": "Stopped", "SecondaryStatus": "MaxWaitTimeExceeded"},
            False,
        ),
        (
            ["Starting", "Stopped"],
            {"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped"},
            False,
        ),
    ],
)
def test_only_a_job_that_never_got_instances_lacked_capacity(phases, answer, lacks):
    transitions = [{"Status": phase, "StatusMessage": ""} for phase in phases]
    described = {
        "TrainingJobName": "j",
        "TrainingJobArn": "a",
        "SecondaryStatusTransitions": transitions,
    }
    assert bool(why_no_capacity(read(TRAINING, described | answer))) is lacks
