"""What makes an instance one of another job, or of another image."""

from dataclasses import asdict, replace

import pytest

from raysm.bootstrap.control import Identity

MINE = Identity(payload="p", python="3.11.7", ray="2.60.0", raysm="0.1")


def test_an_equal_identity_has_no_difference():
    assert MINE.difference(asdict(MINE)) is None


@pytest.mark.parametrize("name", ["python", "ray", "raysm"])
def test_another_version_is_told_with_both_and_the_remedy(name):
    words = MINE.difference(asdict(replace(MINE, **{name: "9"})))
    assert words == f"it has {name} 9, the head has {name} {getattr(MINE, name)}: use one image for all instances"


def test_another_payload_is_told_without_the_digests():
    assert "another request or source" in MINE.difference(asdict(replace(MINE, payload="q")))


def test_an_identity_that_says_nothing_differs():
    assert MINE.difference({}) is not None
