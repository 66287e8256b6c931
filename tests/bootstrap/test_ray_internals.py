"""Ray's private names: what the installed Ray has of them, and what is done without each."""

import subprocess
import sys

import pytest

from raysm.bootstrap import ray_internals
from raysm.bootstrap.ray_internals import Internal, spare_options
from raysm.errors import MissingDependency

INTERNALS = [value for value in vars(ray_internals).values() if isinstance(value, Internal)]


newest = pytest.mark.skipif(
    not ray_internals.version().startswith("2.60."), reason="an older Ray may lack what only makes jobs faster"
)


@newest
@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: f"{internal.module}.{internal.name}")
def test_the_installed_ray_has_each_name(internal):
    assert internal.find() is not None


def test_what_needs_a_missing_name_is_left_out_or_an_error():
    # Any module does: what counts is whether the name is there.
    has, lacks = (Internal(module="types", name=name, purpose="end a node") for name in ("ModuleType", "NoSuchType"))
    assert spare_options(has, {"limit": 1}) == {"limit": 1}
    assert spare_options(lacks, {"limit": 1}) == {}
    lacks.replace(lambda original: pytest.fail("there is nothing to adapt"))
    needed = Internal(module="no_such_module", name="name", purpose="start a node", is_needed=True)
    with pytest.raises(MissingDependency, match="needs to start a node; use Ray >="):
        needed.find()


def test_looking_for_a_name_imports_no_ray_before():
    code = "import sys; import raysm.bootstrap.ray_internals; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
