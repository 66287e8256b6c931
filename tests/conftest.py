"""What every test shares: a home for jobs, and the reason why a machine cannot run those that need namespaces."""

import gc
import os
import signal
import sys
import time

import cloudpickle
import pytest
from hypothesis import HealthCheck, settings

from raysm.bootstrap.resources import memory_limit
from raysm.contract.home import VARIABLE
from tests.support import browsers, docker, namespaces
from tests.support.homes import serving
from tests.support.models_of_aws import read_once
from tests.support.order import by_chance, drawn, has_none, longest_first

# Whoever runs the tests in the background of a shell ignores them, and so would every command that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Some shells and images tell Python to keep no bytecode: each of the thousands of processes that the tests start would
# compile raysm anew, a third of what importing it takes.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

read_once()

# On a machine with other work whatever takes time is too slow at some time.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

REASONS = {"browser": browsers.why_not, "namespace": namespaces.why_not, "docker": docker.why_not}


def pytest_addoption(parser):
    parser.addoption("--draw", type=int, metavar="N", help="run N by chance of the tests that are asked for")
    parser.addoption(
        "--until",
        type=float,
        metavar="TIME",
        help="skip what has not begun by then, in seconds since 1970; files are told in an order by chance",
    )


def pytest_ignore_collect(collection_path, config):
    """Leave out the files that have no test of the one mark that is asked for."""
    return True if has_none(collection_path, config.option.markexpr) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Look for no garbage while all tests are read, nor among them later: they and their modules stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers():
    """Return how many processes run the tests: one more than two cores, since a test of a cluster waits a third of it.

    Three clusters at a time, each of several Ray nodes, would fill a small machine's memory.
    """
    return 3 if memory_limit() > 12 << 30 else 2


# After the marks have chosen.
@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if config.option.draw is not None:
        left, items[:] = items[:], drawn(items, config.option.draw)
        config.hook.pytest_deselected(items=[item for item in left if item not in items])
    if config.option.until is not None:
        by_chance(items)
    elif not config.pluginmanager.has_plugin("randomly"):
        longest_first(items)
    for name, why_not in REASONS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        reason = why_not() if marked else None
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))


# Before any fixture of the test starts what it needs.
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what was to begin by a time that has passed, and say so."""
    until = item.config.option.until
    if until is not None and time.time() > until:
        pytest.skip("no time was left for it (--until)")


@pytest.fixture(autouse=True)
def no_training_left_behind():
    """A session of ``raysm.training`` belongs to the process: one that a test leaves makes others fail, far from it."""
    yield
    sessions = sys.modules.get("raysm.workloads.training.loop.session")
    if sessions is not None and sessions._session is not None:
        sessions.end()
        pytest.fail("the test left its training session behind: end() it")


@pytest.fixture(scope="module")
def by_value(request):
    """The functions of the test's module travel whole: no other process can import it."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """The home of the embedded SageMaker of all tests that need no own one: RAYSM_HOME, here and in children."""
    before = os.environ.get(VARIABLE)
    with serving(tmp_path_factory.mktemp("home")) as folder:
        os.environ[VARIABLE] = str(folder)
        yield folder
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
