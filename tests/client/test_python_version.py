"""Which Python pickles, and may read what is pickled."""

import platform

import pytest

from raysm.client.units import PYTHON_VERSION, check_python
from raysm.errors import InvalidRequest


def test_it_is_the_version_without_the_number_of_the_release_that_only_mends():
    assert platform.python_version().startswith(f"{PYTHON_VERSION}.")
    assert PYTHON_VERSION.count(".") == 1


def test_what_this_python_pickled_may_be_read():
    check_python(PYTHON_VERSION, "the value of digits-1")


@pytest.mark.parametrize("other", ["2.7", "3.99"])
def test_what_another_python_pickled_is_refused_with_both_versions_and_a_remedy(other):
    with pytest.raises(InvalidRequest) as refused:
        check_python(other, "the value of digits-1")
    assert f"the value of digits-1 was pickled by Python {other}" in str(refused.value)
    assert f"this is Python {PYTHON_VERSION}" in str(refused.value)
    assert f"ask for the result under Python {other}" in str(refused.value)
