"""Pages of Batch's lists."""

from raysm.local.server.batch.paging import page_under


def page(items, **request):
    return page_under("things", items, request, str, lambda item: item * 10)


def test_one_page_where_all_fit():
    assert page([1, 2]) == {"things": [10, 20]}


def test_each_page_names_the_next_until_the_last():
    first = page([1, 2, 3], maxResults=2)
    assert first["things"] == [10, 20]
    assert page([1, 2, 3], maxResults=2, nextToken=first["nextToken"]) == {"things": [30]}


def test_a_page_has_a_hundred_where_nobody_says():
    assert len(page(list(range(101)))["things"]) == 100
