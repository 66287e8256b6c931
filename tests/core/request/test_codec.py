import contextlib
import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.request import Cluster, Input, InstanceGroup, JobRequest
from raysm.core.request.codec import from_json, to_json
from raysm.errors import InvalidRequest
from raysm.features.similarity.request import Similarity

REQUEST = JobRequest(
    name="a-job",
    workload=Similarity(threshold=0.5),
    cluster=Cluster(
        groups=[InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("work", "ml.c5.xlarge", 2)]
    ),
    inputs={"matrix": Input("data.npy")},
)


def changed(**changes):
    return to_json(REQUEST) | changes


def test_a_request_survives_the_way_through_json():
    assert from_json(JobRequest, json.loads(json.dumps(to_json(REQUEST)))) == REQUEST


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(grace="soon"), "'grace'"),
        ({"workload": {"kind": "script", "script": "a.py"}}, "'name'"),
        (changed(grace_s="soon"), r"request\.grace_s: .*'soon'"),
        (changed(grace_s=float("nan")), r"request\.grace_s: .*nan"),
        (changed(cluster={"count": 1.5}), r"request\.cluster\.count: .*1\.5"),
        (changed(workload={"kind": "dance"}), r"request\.workload\.kind: .*'dance'"),
        (changed(inputs={"matrix": {"uri": 3}}), r"request\.inputs\.matrix\.uri: .*3"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_value(data, message):
    with pytest.raises(InvalidRequest, match=message):
        from_json(JobRequest, data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(key=st.sampled_from(sorted(to_json(REQUEST))), value=JSON)
def test_any_json_in_any_field_is_read_or_refused_never_a_crash(key, value):
    with contextlib.suppress(InvalidRequest):
        assert isinstance(from_json(JobRequest, changed(**{key: value})), JobRequest)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Odd:
    value: set[str] | None = None
    either: int | str = 0


@pytest.mark.parametrize("field", ["value", "either"])
def test_a_field_of_a_type_that_is_no_json_is_named_with_what_may_stand_there(field):
    with pytest.raises(InvalidRequest, match=rf"odd\.{field}: .*declare text"):
        from_json(Odd, {field: ["x"]}, "odd")
