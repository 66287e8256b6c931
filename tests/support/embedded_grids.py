"""Grids over HTTP: the embedded server of a home plays several regions, and a controller runs in this process."""

import contextlib
import functools
import os

from raysm.core.client.service import Service
from raysm.core.protocol.home import VARIABLE, scenario_file
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import Limits, Local
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.plan import make_plan
from raysm.features.grid.rules import Rules
from raysm.features.grid.running import open_running
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.template import Template
from raysm.features.script.request import Script
from tests.support.homes import serving

TYPE = "ml.g5.xlarge"


@contextlib.contextmanager
def embedded(folder, scenario=""):
    """Yield a home of its own, whose server plays ``scenario``; RAYSM_HOME names it, for the grid's own file."""
    folder.mkdir(parents=True, exist_ok=True)
    scenario_file(folder).write_text(scenario)
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = str(folder)
    try:
        with serving(folder) as home:
            yield home
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


class EmbeddedGrid:
    """One grid of one script over the regions of a home."""

    def __init__(self, home, regions, *, kind="simulated", types=(TYPE,), script="print(1)\n"):
        self.home = home
        self.regions = tuple(regions)
        self.types = types
        self.script = home / "train.py"
        self.script.write_text(script)
        self.target = Local(regions=self.regions, instance_kind=kind, home=str(home))
        self.service = functools.lru_cache(Service)
        self.clock = self.service(self.target).clock

    def request(self, rows, *, name="grid", args=("{key}",), limits=None, **rules):
        options = {"limits": limits or Limits(max_runtime_s=7200)}
        return GridRequest(
            name=name,
            template=Template(
                workload=Script(str(self.script), args=args), target=self.target, options=options
            ),
            source=source_of(rows),
            regions=self.regions,
            instance_types=self.types,
            rules=Rules(**{"brake": 0} | rules),
        )

    def open(self, request, **more):
        """Begin the grid, or take it up, as the command line does it."""
        grid = make_plan(request, self.service)
        return open_running(grid, self.service, **more)

    def run(self, request, **more):
        """Run a grid to its end; return it, still open."""
        running = self.open(request, **more)
        running.run()
        return running

    def jobs(self, prefix=""):
        """Return what List of every region says, by the regions' names."""
        services = {region: self.service(self.target.in_region(region)) for region in self.regions}
        return {
            region: list(each.summaries(TRAINING, contains=prefix, limit=10**6))
            for region, each in services.items()
        }
