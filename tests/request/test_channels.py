"""What can be asked of a channel."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.channels import Input


def test_a_channel_without_a_place_is_refused_with_the_forms_of_one():
    with pytest.raises(InvalidRequest, match="the uri is empty; give s3://…, file://… or a path"):
        Input("")


def test_another_distribution_than_the_services_is_refused_with_its_value():
    with pytest.raises(InvalidRequest, match="'FullyReplicated' or 'ShardedByS3Key', got 'Sharded'"):
        Input("s3://bucket/key", distribution="Sharded")


def test_groups_in_a_list_make_the_same_channel_as_in_a_tuple():
    listed = Input("s3://bucket/key", groups=["work"])
    assert listed == Input("s3://bucket/key", groups=("work",))
    assert hash(listed) == hash(Input("s3://bucket/key", groups=("work",)))


def test_a_manifest_is_not_streamed():
    with pytest.raises(InvalidRequest, match="the manifest 's3://b/m' cannot be streamed; drop mode='FastFile'"):
        Input("s3://b/m", manifest=True, mode="FastFile")
