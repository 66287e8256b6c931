"""Ray's private names: what the installed Ray has of them, and what is done without each."""

import pytest

from raysm.bootstrap import ray_internals
from raysm.bootstrap.ray_internals import Internal
from raysm.contract.packages import installed_version

INTERNALS = [value for value in vars(ray_internals).values() if isinstance(value, Internal)]


newest = pytest.mark.skipif(
    not (installed_version("ray") or "").startswith("2.60."), reason="an older Ray may lack what only makes jobs faster"
)


@newest
@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: f"{internal.module}.{internal.name}")
def test_the_installed_ray_has_each_name(internal):
    assert internal.find() is not None
