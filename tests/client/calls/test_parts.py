import pytest

from raysm.client.calls import Parts, call_of, join_path, present
from raysm.contract.job_api import APIS
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, InstanceGroup, JobRequest, Local, Script
from tests.support.sagemaker import aws, places_of


def parts(target=None, **fields):
    request = JobRequest(name="job", workload=Script("x.py"), **fields)
    target = target or aws()
    return Parts(request=request, target=target, places=places_of(target), state=None, tags={}, seal=None)


def test_the_payload_is_the_first_channel_and_goes_to_all_groups_where_channels_name_some():
    groups = (InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.m5.large", 1))
    inputs = {"x": Input("s3://b/x", groups=("a",))}
    (name, payload), (other, _) = parts(cluster=Cluster(groups=groups), inputs=inputs).channels()
    assert (name, payload.groups, other) == ("raysm", ("a", "b"), "x")


def test_a_file_is_an_input_only_where_the_target_takes_files():
    source = Input("file:///data/x")
    assert parts(Local()).uri("x", source) == "file:///data/x"
    with pytest.raises(InvalidRequest, match="which the service cannot read"):
        parts().uri("x", source)


def test_what_is_none_is_left_out():
    assert present(a=None, b=0, c=False) == {"b": 0, "c": False}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_a_call_says_where_its_job_will_leave_what_it_made(api):
    whole = parts(cluster=Cluster("ml.m5.large"), kind=api.kind)
    outputs = call_of(api).outputs("job", call_of(api).parameters(whole))
    assert outputs == whole.output_prefix() == join_path(whole.output_root(), "job")
