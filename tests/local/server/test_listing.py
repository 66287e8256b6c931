"""Pages, filters and tags, which all Lists have in common."""

from types import SimpleNamespace

import pytest

from raysm.local.server.answers import listed, matches, page_of, tags_of
from raysm.local.server.validation import ApiError


def job(name="a-job", status="Completed", created_s=10.0, modified_s=20.0):
    return SimpleNamespace(name=name, status=status, created_s=created_s, modified_s=modified_s)


def names(pages):
    return [item.name for page in pages for item in page]


def test_pages_follow_each_other_and_the_last_one_has_no_token():
    jobs, token, pages = [job(f"job-{number:02}") for number in range(25)], None, []
    while token is not None or not pages:
        page, more = page_of(jobs, {"NextToken": token}, lambda item: item.name)
        pages.append(page)
        token = more.get("NextToken")
    assert [len(page) for page in pages] == [10, 10, 5]
    assert names(pages) == [item.name for item in jobs]


def test_one_that_comes_meanwhile_shifts_no_page():
    jobs = [job("b"), job("c")]
    page, more = page_of(jobs, {"MaxResults": 1}, lambda item: item.name)
    second, _ = page_of([job("a"), *jobs], {"MaxResults": 1, **more}, lambda item: item.name)
    assert names([page, second]) == ["b", "c"]


def test_a_token_of_nothing_is_refused():
    for token in ("!", "e30="):
        with pytest.raises(ApiError, match="Invalid NextToken"):
            page_of([job()], {"NextToken": token}, lambda item: item.name)


@pytest.mark.parametrize(
    ("request_", "fits"),
    [
        ({}, True),
        ({"StatusEquals": "Failed"}, False),
        ({"NameContains": "A-J"}, True),
        ({"CreationTimeAfter": 11}, False),
        ({"CreationTimeBefore": 11}, True),
        ({"LastModifiedTimeAfter": 20}, True),
        ({"LastModifiedTimeBefore": 19}, False),
    ],
    ids=["all", "status", "name", "after", "before", "modified after", "modified before"],
)
def test_each_filter_passes_what_it_says(request_, fits):
    assert matches(job(), request_) is fits


def test_tags_are_told_as_they_were_given_and_no_key_stands_twice():
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}]
    assert listed(tags_of(tags)) == tags
    with pytest.raises(ApiError, match="duplicate tag keys"):
        tags_of([*tags, tags[0]])
