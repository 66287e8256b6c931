"""The rules by which trials are ended early."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.codec import to_json
from raysm.request.sweep import Asha, Median, Pbt, rule_of


@pytest.mark.parametrize("rule", [Asha(grace=3), Median(least_trials=5), Pbt(every=2, share=0.5)], ids=str)
def test_a_rule_travels_as_json(rule):
    assert rule_of(to_json(rule)) == rule
    assert rule_of(rule) is rule


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: rule_of("ashe"), "there is no rule stop='ashe'; there are 'asha', 'median'"),
        (lambda: rule_of(7), "there is no rule stop=7; there are 'asha', 'median', 'pbt' and None"),
        (lambda: Asha(grace=0), "Asha: grace must be a whole number of at least 1, got 0"),
        (lambda: Pbt(share=0.6), "share must be above 0 and at most 0.5, got 0.6"),
    ],
)
def test_what_cannot_be_is_refused(make, said):
    with pytest.raises(InvalidRequest, match=said):
        make()
