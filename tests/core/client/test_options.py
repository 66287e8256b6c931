"""An option is written once: the keywords, their texts, the fields of a request and the decorator say the same."""

import dataclasses
import re
import typing

import pytest

import raysm
from raysm.core.client.options import SubmitKeywords, SubmitOptions
from raysm.core.client.submit import prepare, submit
from raysm.core.request import Cluster, Input, JobRequest, Limits, MetricDefinition, Security
from raysm.errors import InvalidRequest
from raysm.features.script.request import Script


@pytest.fixture
def send(fake, script):
    def send(workload=None, **options):
        try:
            return raysm.submit(workload or raysm.Script(str(script)), **({"on": fake} | options))
        finally:
            send.submitted = fake.submitted

    return send


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": 2}, r"cluster must be raysm\.Cluster.*got 2"),
        ({"on": "aws"}, r"on must be raysm\.AWS.*'aws'"),
        ({"inputs": "small.npy"}, "inputs.*'small.npy'"),
        ({"inputs": {"matrix": [[1, 2]]}}, "'matrix'.*got a list"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_before_anything_is_sent(send, options, message):
    with pytest.raises(ValueError, match=message):
        send(**options)
    assert send.submitted == []


OWN = {"on", "if_done", "resume", "regions", "region_wait_s"}
"""What is done with the job, beside what it is."""


def fields():
    return {field.name for field in dataclasses.fields(JobRequest)}


def test_the_options_are_the_fields_of_a_request_and_the_files_that_travel():
    assert set(typing.get_type_hints(SubmitOptions)) == fields() - {"workload"} | {"wheels"}
    assert (
        set(typing.get_type_hints(SubmitKeywords))
        == set(typing.get_type_hints(SubmitOptions)) | OWN
    )


@pytest.mark.parametrize(
    "take", [submit, lambda work, **options: raysm.remote(**options)], ids=["submit", "remote"]
)
def test_an_option_that_there_is_not_is_refused_with_the_nearest(take):
    with pytest.raises(InvalidRequest, match="'limit'.* limits"):
        take(Script("a.py"), limit=Limits())
    with pytest.raises(InvalidRequest, match="'zzz'.*cluster, inputs, .*, if_done, resume"):
        take(Script("a.py"), zzz=1)


def asked(script):
    """A request that chooses every option."""
    return JobRequest(
        name="mine",
        workload=Script(str(script)),
        cluster=Cluster("ml.m5.large", count=3),
        inputs={"x": Input("s3://b/x/", content_type="text/csv")},
        limits=Limits(max_runtime_s=60),
        security=Security(encrypt_traffic=True),
        environment={"A": "1"},
        hyperparameters={"lr": "0.1"},
        tags={"team": "a"},
        metrics=(MetricDefinition("loss", "(.*)"),),
        requirements=("tqdm",),
        checkpoint_uri="s3://b/ck",
        output_uri="s3://b/out",
        grace_s=10.0,
        ports=raysm.Ports(gcs=7000),
        project="p",
    )


def without_name(request):
    return dataclasses.replace(request, name="any")


def test_a_whole_request_is_sent_as_it_is_under_a_name_of_its_own_and_as_by_keywords(
    remote, script
):
    request = asked(script)
    ready = prepare(request, on=remote.service)
    assert without_name(ready.request) == without_name(request)
    assert ready.task == "mine"
    assert re.fullmatch(r"mine-\d{8}-\d{6}-[0-9a-f]{8}", ready.request.name)
    job = raysm.submit(request, on=remote.service)
    assert job.tags["team"] == "a"
    options = {name: getattr(request, name) for name in fields() - {"workload"}}
    assert (
        prepare(request.workload, on=remote.service, **options).source_digest == ready.source_digest
    )


def test_none_of_an_option_is_its_default(remote, script):
    named = dict.fromkeys(typing.get_type_hints(SubmitOptions)) | {
        "cluster": Cluster("ml.m5.large")
    }
    ready = prepare(Script(str(script)), on=remote.service, **named)
    plain = prepare(Script(str(script)), on=remote.service, cluster=Cluster("ml.m5.large"))
    assert without_name(ready.request) == without_name(plain.request)


def test_what_a_request_says_already_cannot_be_said_beside_it(remote, script):
    with pytest.raises(InvalidRequest, match=r"JobRequest.*replace\(request, cluster=…\)"):
        raysm.submit(asked(script), on=remote.service, cluster=Cluster("ml.m5.large"))
    assert remote.sagemaker.sent == []


M5 = Cluster("ml.m5.large", count=2)


def double(x):
    return 2 * x


def remote_double(fake, **options):
    return raysm.remote(cluster=M5, on=fake.service, **options)(double)


def test_a_decorated_function_is_still_a_function(remote):
    fn = remote_double(remote)
    assert fn(2) == 4
    assert fn.__name__ == "double"


def test_the_options_of_a_decorated_function_can_be_laid_over(remote):
    job = remote_double(remote, name="a").options(name="b").submit(1)
    assert job.name.startswith("b-")


class Model:
    def __init__(self, factor):
        self.factor = factor

    @raysm.remote(cluster=M5)
    def scaled(self, number):
        return self.factor * number


def test_a_decorated_method_is_called_and_submitted_with_its_instance(remote):
    assert Model(3).scaled(2) == 6
    assert Model.scaled(Model(3), 2) == 6
    scaled = Model(3).scaled.options(on=remote.service)
    assert scaled.submit(2).name.startswith("scaled-")
    with pytest.raises(InvalidRequest, match=r"scaled .*'number'"):
        scaled.submit()


def test_a_function_without_arguments_is_submitted_as_it_is(remote):
    assert prepare(double_of_one, cluster=M5, on=remote.service).request.workload.kind == "function"
    with pytest.raises(InvalidRequest) as refused:
        prepare(double, cluster=M5, on=remote.service)
    assert "raysm.Function(fn, …)" in refused.value.remedy


def double_of_one():
    return double(1)


def test_only_a_function_is_decorated():
    with pytest.raises(InvalidRequest, match="function, got 3"):
        raysm.remote(name="task")(3)
