"""One small Ray on this machine for these tests, with a token of its own and without the home folder."""

import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from raysm.core.protocol.names import BASE_DIR
from raysm.core.protocol.paths import Paths
from raysm.instance.variables import ray_variables
from tests.support.small_ray import small_ray


@contextlib.contextmanager
def environment(folder):
    """Set what every process of the Ray in ``folder`` needs; afterwards, set all back."""
    wanted = {
        "HOME": str(folder),
        BASE_DIR: str(folder / "ml"),
        # The oldest Ray warns a driver unless this is 0.
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        # Else Ray runs its workers at the lowest priority, behind all other tests, and ends those
        # that are idle.
        "RAY_worker_niceness": "0",
        "RAY_idle_worker_killing_time_threshold_ms": "60000",
        **ray_variables(folder / "token", folder, on_loopback=False),
    }
    names = [*wanted, "RAY_AUTH_TOKEN", "RAY_ADDRESS"]
    before = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@pytest.fixture(scope="session")
def one_ray():
    """Start a Ray of two CPUs whose one node is the instance algo-1; yield its folder."""
    import ray
    from ray._private.authentication_test_utils import reset_auth_token_state

    # Short: Ray keeps sockets below it.
    folder = Path(tempfile.mkdtemp(prefix="rw", dir="/tmp"))
    (folder / "token").write_text("0" * 64)
    try:
        with contextlib.ExitStack() as stack:
            with environment(folder):
                # Ray reads mode and token once for a process, when it is imported: make it read
                # them again.
                reset_auth_token_state()
                address = stack.enter_context(small_ray(folder / "r"))
                ray.init(address=address, log_to_driver=False, configure_logging=False)
                stack.callback(ray.shutdown)
            yield folder
    finally:
        reset_auth_token_state()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def ray_here(one_ray, request):
    """Ray, connected, with the functions of the test's module at hand in its workers."""
    import ray

    # The workers cannot import test modules: their functions travel whole.
    ray.cloudpickle.register_pickle_by_value(request.module)
    with environment(one_ray):
        yield ray
    ray.cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture
def base(ray_here):
    """An empty base folder of the instance algo-1, as every process of ``ray_here`` finds it."""
    folder = Path(os.environ[BASE_DIR])
    shutil.rmtree(folder, ignore_errors=True)
    config = folder / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    return folder


@pytest.fixture
def instance(tmp_path):
    """The folders of an instance that is the only one of its job, without a cluster."""
    paths = Paths(tmp_path / "ml")
    paths.config.mkdir(parents=True)
    paths.resource_config.write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    return paths


@pytest.fixture
def address(ray_here):
    """The address of ``ray_here``, in the variable by which a driver finds it."""
    os.environ["RAY_ADDRESS"] = ray_here.get_runtime_context().gcs_address
    yield os.environ["RAY_ADDRESS"]
    del os.environ["RAY_ADDRESS"]
