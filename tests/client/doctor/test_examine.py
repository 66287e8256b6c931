"""Every check has a name of its own, and all are carried out in their order."""

from raysm.client.doctor import CHECKS


def test_the_names_of_the_checks_are_distinct():
    assert len({check.name for check in CHECKS}) == len(CHECKS)


def test_findings_come_in_the_order_of_the_checks(account):
    order = [check.name for check in CHECKS]
    names = list(account.findings())
    assert names == sorted(names, key=order.index)
