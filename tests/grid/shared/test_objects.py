"""The folder of a grid's copies in S3 itself, as moto plays it: what the fake of the other tests promises."""

import pytest

from raysm.client.storage.s3 import Outdated
from raysm.grid.shared.sharing import objects_of
from tests.support.grid_world import Clock
from tests.support.sagemaker import fake_aws
from tests.support.shared_grids import FakeObjects


@pytest.fixture(params=["s3", "fake"])
def objects(request):
    if request.param == "fake":
        yield FakeObjects(Clock())
        return
    with fake_aws() as fake:
        objects = objects_of("drives", fake.service)
        objects.make_bucket()
        yield objects


def test_what_is_written_is_read_and_listed_and_removed(objects):
    objects.put("copies/2", b"two")
    objects.put("copies/1", b"one")
    objects.put("commands/1", b"")
    assert objects.names("copies/") == ["copies/1", "copies/2"]
    assert objects.read("copies/2").content == b"two"
    objects.remove("copies/2")
    objects.remove("copies/2")
    assert objects.names("") == ["commands/1", "copies/1"]
    assert objects.read("copies/2") is None


def test_it_is_written_over_only_as_it_was_read(objects):
    version = objects.replace("head.json", b"1", None)
    with pytest.raises(Outdated):
        objects.replace("head.json", b"2", None)
    objects.replace("head.json", b"3", version)
    with pytest.raises(Outdated):
        objects.replace("head.json", b"4", version)
    assert objects.read("head.json").content == b"3"
    assert objects.read("head.json").age_s >= 0
