"""One cluster and one browser for all tests of pages."""

import contextlib
import os
import time

# pytest imports it at its end, and Python 3.11 cannot parse deep in the greenlets that Playwright has left.
import hypothesis  # noqa: F401
import pytest

from raysm.client.job import attach
from raysm.client.submit import submit
from raysm.request import Cluster, Script
from tests.support import browsers
from tests.support.jobs import FORMING_S

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


@contextlib.contextmanager
def running_job(folder, instances):
    """Yield a job that runs until a test stops it."""
    script = folder / "work.py"
    script.write_text(WORK)
    job = submit(Script(str(script)), cluster=Cluster(count=instances))
    try:
        deadline_s = time.monotonic() + FORMING_S
        while not any(line.text == "user code runs" for line in job.lines()):
            assert job.running(), job.exception()
            assert time.monotonic() < deadline_s
            time.sleep(0.5)
        yield job
    finally:
        attach(job.name).stop()


@pytest.fixture(scope="session")
def job(home, tmp_path_factory):
    with running_job(tmp_path_factory.mktemp("work"), 2) as job:
        yield job


@pytest.fixture
def second_job(home, tmp_path):
    with running_job(tmp_path, 1) as job:
        yield job


@pytest.fixture(scope="session")
def dashboard(job):
    with job.dashboard(timeout=FORMING_S) as dashboard:
        yield dashboard


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

    Of a page, or of a part of one.
    """

    def write(shown, name):
        folder = os.environ.get("RAYSM_PICTURES")
        if folder:
            shown.screenshot(path=f"{folder}/{name}.png")

    return write
