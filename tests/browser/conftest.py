"""One browser, one JupyterLab and as few clusters as can be for all tests of pages."""

import contextlib
import importlib
import os
import sys
import time
from dataclasses import dataclass

# pytest imports it at its end, and Python 3.11 cannot parse deep in the greenlets that Playwright
# has left.
import hypothesis  # noqa: F401
import pytest

from raysm.core.client.job.handle import Job, attach
from raysm.core.client.submit import submit
from raysm.core.client.targets.local import ensure_server
from raysm.core.client.views.server import Page
from raysm.core.request import Cluster
from raysm.features.script.request import Script
from tests.support import browsers
from tests.support.jobs import FORMING_S
from tests.support.jupyter import serving_lab
from tests.support.waiting import until_line

WORK = """
import time
import ray, raysm
ray.init(log_to_driver=False)

@ray.remote(num_cpus=0)
class Counter:
    def add(self, number):
        return number

@ray.remote(num_cpus=0)
def square(number):
    return number * number

counter = Counter.options(name="counter").remote()
print("user code runs", flush=True)
step = 0
while True:
    ray.get([counter.add.remote(step), *(square.remote(number) for number in range(3))])
    raysm.report(step=step, loss=1 / (1 + step))
    step += 1
    time.sleep(1)
"""

CORES = 4
"""Instances at a time: two clusters, and a notebook with one of its own, are to live at once on two
cores as well."""


@dataclass
class Shown:
    """A job whose dashboard is open."""

    job: Job
    dashboard: Page


class Clusters:
    """One cluster for all tests of a module that do not end it: it is busy as long as it lives."""

    def __init__(self, folder):
        self._folder, self._open = folder, contextlib.ExitStack()
        self._live = None

    def start(self, instances):
        """Return a job that runs until it is stopped, or all is closed."""
        script = self._folder / "work.py"
        script.write_text(WORK)
        job = submit(Script(str(script)), cluster=Cluster(count=instances))
        self._open.callback(attach(job.name).stop)
        until_line(job, "user code runs", FORMING_S)
        return job

    def live(self):
        """Return one of two instances that lives."""
        if self._live is None:
            job = self.start(2)
            self._live = Shown(job, self._open.enter_context(job.dashboard(timeout=FORMING_S)))
        return self._live

    def close(self):
        self._open.close()


@pytest.fixture(scope="session")
def home(home):
    """The home of all tests, whose server runs more instances at a time than this machine may have cores."""
    ensure_server(home, command=(sys.executable, "-m", "raysm.local.server", "--cores", str(CORES)))
    return home


@pytest.fixture(scope="module")
def clusters(home, tmp_path_factory):
    with contextlib.closing(Clusters(tmp_path_factory.mktemp("work"))) as clusters:
        yield clusters


@pytest.fixture
def job(clusters):
    return clusters.live().job


@pytest.fixture
def dashboard(clusters):
    return clusters.live().dashboard


@pytest.fixture(scope="session")
def lab(home, tmp_path_factory):
    """One JupyterLab for all notebooks: it takes five seconds of a core to come up."""
    with serving_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(autouse=True)
def patient():
    if browsers.why_not() is None:
        importlib.import_module("playwright.sync_api").expect.set_options(timeout=browsers.WAIT_MS)


@pytest.fixture(scope="session")
def browser():
    with browsers.running() as browser:
        yield browser


@pytest.fixture
def looked(browser):
    with browsers.looking(browser) as (context, seen):
        yield context, seen


@pytest.fixture
def page(looked):
    return looked[0].new_page()


@pytest.fixture
def picture():
    """Return a function that writes a picture for the documentation, where somebody asks for pictures.

    Of a page, or of a part of one; where it says so, some seconds later, when there is more to be
    seen.
    """

    def write(shown, name, *, later_s=0.0):
        folder = os.environ.get("RAYSM_PICTURES")
        if folder:
            time.sleep(later_s)
            shown.screenshot(path=f"{folder}/{name}.png")

    return write
