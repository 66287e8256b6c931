"""What every test shares: the reasons why a machine cannot run those that need something of it."""

import pytest

from tests.support import docker, namespaces

REASONS = {"namespace": namespaces.why_not, "docker": docker.why_not}


def pytest_collection_modifyitems(items):
    for name, why_not in REASONS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        reason = why_not() if marked else None
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))
