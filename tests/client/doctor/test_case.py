"""What is known of a job, findings, and the order of the checks."""

import pytest

from raysm.client.doctor import CHECKS, Check, State, carry_out
from raysm.client.doctor.case import Intent, bad, good, intent_of, one_suffices, unknown
from raysm.contract.job_api import PROCESSING
from raysm.errors import InvalidRequest, ServiceError
from raysm.request import Cluster, InstanceGroup


def test_options_that_no_check_looks_at_are_left_out():
    intent = intent_of({"kind": "processing", "name": "x", "wheels": ("a.whl",), "if_done": "run"})
    assert intent == Intent(kind="processing", wheels=("a.whl",))


@pytest.mark.parametrize(
    ("cluster", "counts"),
    [
        (None, ()),
        (Cluster("ml.m5.large", count=3), ({"ml.m5.large": 3},)),
        (
            Cluster(groups=(InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.c5.large", 2))),
            ({"ml.m5.large": 1, "ml.c5.large": 2},),
        ),
        (Cluster("ml.m5.large", count=3, alternatives=("ml.c5.large",)), ({"ml.m5.large": 3}, {"ml.c5.large": 3})),
    ],
)
def test_instances_are_counted_by_type_for_each_way_to_have_them(cluster, counts):
    intent = Intent(cluster=cluster)
    assert (intent.choices, intent.size) == (counts, sum(counts[0].values()) if counts else 0)


def test_a_case_asks_who_calls_once(account):
    case = account.case(Intent(kind="processing"))
    assert (case.caller, case.partition) == (case.caller, "aws")
    assert [name for name, _ in account.clients["sts"].calls] == ["get_caller_identity"]
    assert (case.api, case.region) == (PROCESSING, "eu-west-1")


def carried_out(look):
    return list(carry_out(Check(name="thing", look=look), None))


def failing(error, *before):
    def look(case):
        yield from before
        raise error

    return look


def test_findings_have_the_name_of_their_check():
    def look(case):
        yield good("here")
        yield bad("gone", "make it")

    assert [(finding.name, finding.word) for finding in carried_out(look)] == [("thing", "ok"), ("thing", "BAD")]


def test_what_is_missing_and_not_needed_is_none():
    assert bad("gone", "", needed=False).word == "none"
    assert unknown("who knows").word == "?"


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"])
def test_a_denied_question_is_one_that_could_not_be_looked_at(code):
    (finding,) = carried_out(failing(ServiceError("get_role: no", code=code, remedy="add it")))
    assert finding.state is State.UNKNOWN
    assert "raysm doctor --policy user" in finding.remedy


def test_a_service_that_cannot_be_reached_leaves_what_was_seen_before():
    findings = carried_out(failing(ServiceError("get_role: timed out", is_transient=True), good("first")))
    assert [finding.state for finding in findings] == [State.GOOD, State.UNKNOWN]
    assert "timed out" in findings[1].text


def test_what_a_request_cannot_be_is_bad_with_its_remedy():
    (finding,) = carried_out(failing(InvalidRequest("the image is missing", remedy="give one")))
    assert (finding.state, finding.text, finding.remedy) == (State.BAD, "the image is missing", "give one")


def test_a_page_in_an_error_is_one_line_and_cut_off():
    (finding,) = carried_out(failing(ServiceError("x: <html>\n<p>\n" + "word " * 200, code="500")))
    assert "\n" not in finding.text
    assert len(finding.text) < 350


def test_of_several_ways_what_is_worse_than_the_best_stands_in_nobodys_way():
    fits, lacks, hidden = good("fits"), bad("lacks", "ask"), unknown("hidden")

    def needed(*ways):
        return [finding.needed for finding in one_suffices(ways)]

    assert needed([fits], [fits, lacks], [hidden]) == [True, False, False, False]
    assert needed([lacks], [hidden]) == [False, True]
    assert needed([lacks], [lacks]) == [True, True]
    assert needed([lacks]) == [True]
    assert needed() == []


def test_the_names_of_the_checks_are_distinct():
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_findings_come_in_the_order_of_the_checks(account):
    order = [check.name for check in CHECKS]
    names = list(account.findings())
    assert names == sorted(names, key=order.index)
