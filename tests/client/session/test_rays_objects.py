"""Objects of Ray's between two versions of it."""

import pickle
import threading

import cloudpickle
import pytest
import ray

from raysm.client.session.rays_objects import RaysObject, culprit_among, reader
from raysm.errors import CallFailed

HERE, OTHER = "2.60.0", "2.55.1"


def add(x):
    return x + 1


# Not by the decorator: the plain function stays one.
remote_add = ray.remote(num_cpus=0)(add)


def uses_ray():
    return ray.cluster_resources()


@pytest.mark.parametrize("value", [1, [1, {"a": "b"}], add, uses_ray, RaysObject, ray.ObjectRef])
def test_plain_data_and_functions_that_merely_use_ray_may_travel(value):
    assert culprit_among(print, (value,), {}) is None


def test_an_object_of_rays_is_found_by_its_path():
    assert culprit_among(print, (1, {"work": [1, remote_add]}), {}) == "args[1]"


def test_a_function_of_rays_api_that_was_imported_by_its_name_would_travel_as_code_and_is_found():
    assert culprit_among(print, ([ray.get],), {}) == "args[0]"


def test_one_that_a_function_of_the_users_own_module_uses_is_found(own_module):
    assert culprit_among(own_module.uses, (), {}) == "remote_add (used by uses)"


def test_what_cannot_be_pickled_at_all_is_no_object_of_rays():
    assert culprit_among(print, (threading.Lock(),), {}) is None


@pytest.mark.parametrize("here", ["", HERE])
def test_of_the_same_ray_and_where_there_is_none_everything_is_read(here):
    assert reader(here, HERE) is pickle.loads


def test_of_another_ray_plain_values_are_read_and_objects_of_rays_refused_with_the_remedy():
    loads = reader(HERE, OTHER)
    assert loads(cloudpickle.dumps({"a": [1]})) == {"a": [1]}
    with pytest.raises(CallFailed, match=r"holds ray\.\S+ of Ray 2\.55\.1, and here is Ray 2\.60\.0.*ray==2\.55\.1"):
        loads(pickle.dumps(ray.exceptions.GetTimeoutError("late")))


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module beside the user's program, which travels by value."""
    (tmp_path / "own_work.py").write_text(
        "import ray\n\ndef add(x):\n    return x + 1\n\nremote_add = ray.remote(add)\n\n"
        "def uses():\n    return remote_add.remote(1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_work

    yield own_work
    import sys

    del sys.modules["own_work"]
