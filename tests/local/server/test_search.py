"""Search answers from the records of training jobs, by the documented expressions, and refuses others."""

import pytest

from raysm.local.server.records import JobRecord
from raysm.local.server.search import is_ours, search
from raysm.local.server.validation import ApiError
from tests.support.sagemaker_server import channel, training_request


def job(name, *, created_s=1_800_000_000.0, tags=None, metrics=(), inputs=(), **fields):
    request = training_request(name, "exit 0", **{"InputDataConfig": list(inputs), **fields.pop("request", {})})
    return JobRecord(
        kind="training",
        name=name,
        arn=f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{name}",
        region="us-east-1",
        request=request,
        tags=tags or {},
        created_s=created_s,
        modified_s=created_s,
        metrics=tuple({"MetricName": key, "Value": value, "Timestamp": created_s} for key, value in metrics),
        **fields,
    )


JOBS = [
    job("early", created_s=1_700_000_000.0, status="Completed", tags={"team": "red"}, metrics=[("loss", 0.5)]),
    job(
        "middle",
        created_s=1_750_000_000.0,
        status="Failed",
        failure_reason="out of memory",
        request={"HyperParameters": {"lr": "0.1", "optim.name": "adam"}},
        inputs=[channel("train", "s3://bucket/train"), channel("test", "s3://bucket/test", "ShardedByS3Key")],
    ),
    job("late", status="Completed", metrics=[("loss", 0.1)], request={"HyperParameters": {"lr": "none"}}),
]


def names(*filters, **more):
    request = {"Resource": "TrainingJob", "SearchExpression": {"Filters": list(filters), **more}}
    return [result["TrainingJob"]["TrainingJobName"] for result in search(JOBS, request)["Results"]]


def where(name, operator, value=None):
    return {"Name": name, "Operator": operator, **({} if value is None else {"Value": value})}


def test_all_jobs_are_found_without_an_expression_the_latest_change_first():
    assert names() == ["late", "middle", "early"]


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({"Name": "TrainingJobName", "Value": "early"}, ["early"]),
        (where("TrainingJobStatus", "Equals", "Completed"), ["late", "early"]),
        (where("TrainingJobStatus", "NotEquals", "Completed"), ["middle"]),
        (where("TrainingJobStatus", "In", "Failed, Stopped"), ["middle"]),
        (where("FailureReason", "Contains", "memory"), ["middle"]),
        (where("FailureReason", "Exists"), ["middle"]),
        (where("FailureReason", "NotExists"), ["late", "early"]),
        (where("Tags.team", "Equals", "red"), ["early"]),
        (where("Metrics.loss", "LessThan", "0.3"), ["late"]),
        (where("Metrics.loss", "GreaterThanOrEqualTo", "0.1"), ["late", "early"]),
        (where("HyperParameters.lr", "GreaterThan", "0.05"), ["middle"]),
        (where("HyperParameters.optim.name", "Equals", "adam"), ["middle"]),
        (where("ResourceConfig.InstanceCount", "Equals", "1"), ["late", "middle", "early"]),
        (where("EnableManagedSpotTraining", "Equals", "false"), ["late", "middle", "early"]),
        (where("CreationTime", "GreaterThan", "2024-06-01T00:00:00"), ["late", "middle"]),
        (where("CreationTime", "LessThanOrEqualTo", "2023-11-14T22:13:20Z"), ["early"]),
    ],
)
def test_each_operator_selects_the_jobs_whose_property_fits(filter_, expected):
    assert names(filter_) == expected


def test_filters_are_joined_by_and_or_by_or():
    completed, lossy = where("TrainingJobStatus", "Equals", "Completed"), where("Metrics.loss", "GreaterThan", "0.3")
    assert names(completed, lossy) == ["early"]
    assert names(where("TrainingJobStatus", "Equals", "Failed"), lossy, Operator="Or") == ["middle", "early"]


def test_a_sub_expression_is_one_more_condition():
    either = {
        "Filters": [where("TrainingJobName", "Equals", "late"), where("TrainingJobName", "Equals", "middle")],
        "Operator": "Or",
    }
    assert names(where("TrainingJobStatus", "Equals", "Completed"), SubExpressions=[either]) == ["late"]


def test_nested_filters_have_to_hold_for_one_item_of_the_list():
    def nested(uri, distribution):
        of_source = "InputDataConfig.DataSource.S3DataSource"
        filters = [
            where(f"{of_source}.S3Uri", "Contains", uri),
            where(f"{of_source}.S3DataDistributionType", "Equals", distribution),
        ]
        return names(NestedFilters=[{"NestedPropertyName": "InputDataConfig", "Filters": filters}])

    assert nested("/test", "ShardedByS3Key") == ["middle"]
    assert nested("/train", "ShardedByS3Key") == []


def test_pages_are_sorted_by_any_property_and_count_all_hits():
    request = {"Resource": "TrainingJob", "SortBy": "Metrics.loss", "SortOrder": "Ascending", "MaxResults": 2}
    first = search(JOBS, request)
    second = search(JOBS, {**request, "NextToken": first["NextToken"]})
    found = [result["TrainingJob"]["TrainingJobName"] for page in (first, second) for result in page["Results"]]
    assert found == ["middle", "late", "early"]
    assert first["TotalHits"] == {"Value": 3, "Relation": "EqualTo"}
    assert "NextToken" not in second


@pytest.mark.parametrize(
    ("filter_", "message"),
    [
        (where("Color", "Equals", "red"), "Unknown property name: Color"),
        (where("ResourceConfig.Color", "Equals", "red"), "Unknown property name: ResourceConfig.Color"),
        (where("InputDataConfig.ChannelName", "Equals", "train"), "Unknown property name: InputDataConfig.ChannelName"),
        (where("TrainingJobName", "Equals"), "has no Value"),
        (where("TrainingJobName", "GreaterThan", "a"), "neither a number nor a time"),
        (where("CreationTime", "GreaterThan", "yesterday"), "'yesterday', which is neither a number nor a time"),
        (where("ResourceConfig.InstanceCount", "Contains", "1"), "Contains is only for text"),
        (where("ResourceConfig", "Equals", "1"), "ResourceConfig has parts"),
    ],
)
def test_a_filter_that_means_nothing_is_refused(filter_, message):
    with pytest.raises(ApiError, match=message):
        names(filter_)


def test_only_one_contains_is_allowed_as_on_aws():
    twice = [where("TrainingJobName", "Contains", "a"), where("TrainingJobName", "Contains", "l")]
    with pytest.raises(ApiError, match="'CONTAINS' operator usage limit of 1 exceeded"):
        names(*twice)


@pytest.mark.parametrize("more", [{"CrossAccountFilterOption": "CrossAccount"}, {"VisibilityConditions": [{}]}])
def test_a_part_of_the_request_that_is_not_emulated_is_refused_by_name(more):
    with pytest.raises(ApiError, match=f"does not emulate Search with {next(iter(more))}"):
        search(JOBS, {"Resource": "TrainingJob", **more})


def test_other_resources_that_nobody_here_keeps_are_refused_by_name():
    with pytest.raises(ApiError, match="does not emulate Search for HyperParameterTuningJob, only for TrainingJob"):
        search(JOBS, {"Resource": "HyperParameterTuningJob"})
    assert is_ours({"Resource": "HyperParameterTuningJob"})
    assert not is_ours({"Resource": "Experiment"})
