"""What every test shares: the reason why a machine cannot run those that need network namespaces."""

import pytest

from tests.support.namespaces import why_not


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("namespace")]
    reason = why_not() if marked else None
    for item in marked if reason else ():
        item.add_marker(pytest.mark.skip(reason=reason))
