"""Quotas are listed page by page: the account's own before AWS's defaults, and no more than are taken."""

import itertools

from raysm.client.account.quotas import listed_quotas
from tests.support.quotas import QuotaPages

OWN, DEFAULTS = [("a", 4.0), ("b", 1.0)], [("a", 0.0), ("c", 9.0)]


def listed(client, most=None):
    quotas = itertools.islice(listed_quotas(client.service), most)
    return [(quota["QuotaName"], quota["Value"]) for quota in quotas]


def test_every_page_of_the_accounts_own_comes_before_the_defaults():
    assert listed(QuotaPages(OWN, DEFAULTS)) == OWN + DEFAULTS


def test_no_page_is_read_that_nobody_asks_for():
    client = QuotaPages(OWN, DEFAULTS)
    assert client.pages == 0
    assert listed(client, most=2) == OWN
    assert client.pages == 2
