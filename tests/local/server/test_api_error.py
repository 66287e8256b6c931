"""Refusals as AWS words them."""

import pytest

from raysm.local.server.validation import ApiError, not_found, validation


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (validation("no"), "ValidationException", "no"),
        (not_found(), "ValidationException", "Requested resource not found."),
        (not_found("a-job"), "ValidationException", "Requested resource not found. (a-job)"),
    ],
)
def test_a_refusal_has_awss_code_and_is_of_the_callers_making(error, code, message):
    assert (error.code, error.message, error.status) == (code, message, 400)
    assert str(error) == message


def test_a_refusal_may_have_another_status():
    assert ApiError("AccessDeniedException", "no", 403).status == 403
