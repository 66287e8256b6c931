"""What is known of a job, findings, and the order of the checks."""

import pytest

from raysm.client.doctor.case import State, good
from raysm.client.doctor.checks import Check, carry_out
from raysm.errors import InvalidRequest, ServiceError


def carried_out(look):
    return list(carry_out(Check(name="thing", look=look), None))


def failing(error, *before):
    def look(case):
        yield from before
        raise error

    return look


@pytest.mark.parametrize("code", ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403"])
def test_a_denied_question_is_one_that_could_not_be_looked_at(code):
    (finding,) = carried_out(failing(ServiceError("get_role: no", code=code, remedy="add it")))
    assert finding.state is State.UNKNOWN
    assert "raysm doctor --policy user" in finding.remedy


def test_a_service_that_cannot_be_reached_leaves_what_was_seen_before():
    findings = carried_out(failing(ServiceError("get_role: timed out", is_transient=True), good("first")))
    assert [finding.state for finding in findings] == [State.GOOD, State.UNKNOWN]
    assert "timed out" in findings[1].text
    (finding,) = carried_out(failing(InvalidRequest("the image is missing", remedy="give one")))
    assert (finding.state, finding.text, finding.remedy) == (State.BAD, "the image is missing", "give one")
    # A page in an error is one line, and cut off.
    (finding,) = carried_out(failing(ServiceError("x: <html>\n<p>\n" + "word " * 200, code="500")))
    assert "\n" not in finding.text
    assert len(finding.text) < 350
