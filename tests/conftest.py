"""What all tests share: options, marks that a machine cannot run, and a home for the embedded SageMaker."""

import gc
import os
import signal
import sys

import cloudpickle
import pytest
from hypothesis import HealthCheck, settings

from raysm.core.protocol.home import VARIABLE
from raysm.instance.resources import memory_limit
from tests.support import browsers, docker, namespaces
from tests.support.homes import serving
from tests.support.models_of_aws import read_once
from tests.support.order import SEED, SharingScheduling, draw, is_left_out, longest_first, seed

pytest_plugins = ["tests.support.ray_fixtures", "tests.support.local_fixture"]

# A shell's background processes ignore these signals, and so would every command that a test starts
# and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Without bytecode, each of the thousands of processes that the tests start would compile raysm
# anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

read_once()

# On a busy machine every deadline is missed at some time.
settings.register_profile(
    "any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

REASONS = {"browser": browsers.why_not, "namespace": namespaces.why_not, "docker": docker.why_not}


def pytest_addoption(parser):
    parser.addoption(
        "--draw", type=int, metavar="N", help="of the chosen soak tests, run N drawn at random"
    )


def pytest_configure(config):
    if config.option.draw is not None:
        # Before xdist starts processes, which inherit it.
        seed()


def pytest_report_header(config):
    if config.option.draw is None:
        return None
    return f"soak tests are drawn by the seed {seed()}; the same ones again: {SEED}={seed()}"


def pytest_ignore_collect(collection_path, config):
    """Do not import files that the marks leave out: it takes seconds of a core in each process."""
    return True if is_left_out(collection_path, config.option.markexpr) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect no garbage while tests are imported, which makes it faster: they stay to the end in any case."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers():
    """Return one more than there are cores, because tests of clusters wait at times; two with little memory."""
    return os.cpu_count() + 1 if memory_limit() > 12 << 30 else 2


def pytest_xdist_make_scheduler(config, log):
    return SharingScheduling(config, log)


# After pytest has chosen by marks.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.option.draw is not None:
        left, items[:] = items[:], draw(items, config.option.draw)
        config.hook.pytest_deselected(items=[item for item in left if item not in items])
    if not config.pluginmanager.has_plugin("randomly"):
        longest_first(items)
    for name, why_not in REASONS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        reason = why_not() if marked else None
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def training_ended():
    """End the ``raysm.training`` session that a test began: the next one in this process would be refused."""
    yield
    sessions = sys.modules.get("raysm.features.training.cluster.loop.session")
    if sessions is not None:
        sessions.end()


@pytest.fixture(scope="session", autouse=True)
def _home_of_tests(tmp_path_factory):
    """Keep what tests write into a home out of the user's own: the costs of jobs that they send."""
    with pytest.MonkeyPatch.context() as patch:
        if VARIABLE not in os.environ:
            patch.setenv(VARIABLE, str(tmp_path_factory.mktemp("home-of-tests")))
        yield


@pytest.fixture
def remote():
    """AWS, as far as the client can tell."""
    from tests.support.sagemaker import fake_aws

    with fake_aws() as fake:
        yield fake


@pytest.fixture
def script(tmp_path):
    (tmp_path / "train.py").write_text("print('hello')\n")
    return tmp_path / "train.py"


@pytest.fixture
def job(remote, script):
    """A job of two instances that runs until the test ends it."""
    from raysm.core.client.submit import submit
    from raysm.features.script.request import Script
    from tests.support.client_jobs import M5

    return submit(Script(str(script)), cluster=M5, on=remote.service)


@pytest.fixture
def fake(tmp_path):
    """A SageMaker whose jobs end as the test answers."""
    from raysm.testing import FakeSageMaker

    return FakeSageMaker(tmp_path / "home")


@pytest.fixture(scope="module")
def by_value(request):
    """Pickle the functions of the test's module by value, because other processes cannot import it."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """The shared home of the embedded SageMaker, set as RAYSM_HOME here and in child processes."""
    before = os.environ.get(VARIABLE)
    with serving(tmp_path_factory.mktemp("home")) as folder:
        os.environ[VARIABLE] = str(folder)
        yield folder
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
