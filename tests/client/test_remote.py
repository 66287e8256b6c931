"""Decorated functions: called as before, submitted as jobs."""

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.request import Cluster

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


def test_only_a_function_is_decorated():
    with pytest.raises(InvalidRequest, match="decorates a function, got 3"):
        raysm.remote(name="task")(3)
