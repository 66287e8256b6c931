"""One small Ray on this machine for the tests of a module, with a token of its own and without the home folder."""

import gc
import os
import shutil
import tempfile
import warnings
from pathlib import Path

import pytest

from raysm.contract.names import BASE_DIR, LABEL_HOST

VARIABLES = ("HOME", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS", BASE_DIR)


@pytest.fixture(scope="module")
def ray_here(request):
    """A Ray of two CPUs whose one node is the instance algo-1, whose base folder is ``ml``."""
    import ray
    from ray._private.authentication_test_utils import reset_auth_token_state

    saved = {name: os.environ.get(name) for name in VARIABLES}
    # Short: Ray keeps sockets below it.
    folder = Path(tempfile.mkdtemp(prefix="rw", dir="/tmp"))
    (folder / "token").write_text("0" * 64)
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {
        "HOME": str(folder),
        BASE_DIR: str(folder / "ml"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    # Ray reads these once for a process, when it is imported: make it read them again.
    reset_auth_token_state()
    try:
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=256 << 20,
            labels={LABEL_HOST: "algo-1"},
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=str(folder / "r"),
        )
        # The workers cannot import test modules: their functions travel whole.
        ray.cloudpickle.register_pickle_by_value(request.module)
        yield ray
        ray.cloudpickle.unregister_pickle_by_value(request.module)
    finally:
        ray.shutdown()
        with warnings.catch_warnings():
            # Ray does not wait for the processes that it ends, and drops their handles.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        reset_auth_token_state()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def base(ray_here):
    """An empty base folder of the instance algo-1, as every process of ``ray_here`` finds it."""
    folder = Path(os.environ[BASE_DIR])
    shutil.rmtree(folder, ignore_errors=True)
    config = folder / "input" / "config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text('{"current_host": "algo-1", "hosts": ["algo-1"]}')
    return folder
