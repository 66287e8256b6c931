"""The table of what can play an instance."""

import importlib

import pytest

from raysm.errors import InvalidRequest
from raysm.request.instance_kinds import INSTANCE_KINDS, instance_kind, kind_of_image


@pytest.mark.parametrize("name", INSTANCE_KINDS)
def test_a_kind_is_found_by_its_name_and_by_the_image_that_names_it(name):
    kind = instance_kind(name)
    assert kind.name == name
    assert kind_of_image(kind.image) is kind


@pytest.mark.parametrize("name", INSTANCE_KINDS)
def test_the_class_that_opens_a_kinds_site_is_there(name):
    module, _, attribute = INSTANCE_KINDS[name].site.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


@pytest.mark.parametrize("image", ["raysm/other:latest", "busybox", "registry/raysm/process:latest", "raysm/process/x"])
def test_any_other_image_names_no_kind(image):
    assert kind_of_image(image) is None


def test_an_unknown_kind_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidRequest, match=f"'pod' is not a kind of instance: {', '.join(INSTANCE_KINDS)}"):
        instance_kind("pod")
