"""A grid that is handed over to a Batch of the test's, against the client's own fake of AWS."""

import contextlib
from datetime import UTC, date, datetime

from raysm.core.client.costs.prices import PriceTable, RegionPrices
from raysm.core.client.service import Service
from raysm.core.request import Limits
from raysm.errors import ServiceError
from raysm.features.grid.batch_job.controller_job import ControllerJob, send
from raysm.features.grid.batch_job.handover import take_up
from raysm.features.grid.grid_request import GridRequest
from raysm.features.grid.plan import GridFacts, PlannedGrid, plan_grid
from raysm.features.grid.rules import Rules
from raysm.features.grid.sources.source import source_of
from raysm.features.grid.template import Template
from raysm.features.script.request import Script
from tests.support.homes import in_home
from tests.support.sagemaker import ACCOUNT, REGION, aws, fake_aws
from tests.support.scripted_controllers import ScriptedControllers

TYPE = "ml.m5.large"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/controllers"
DAY = date(2026, 11, 23)
TABLE = PriceTable.of(
    [
        RegionPrices(
            region=REGION, as_of="2026-11-01", version="v1", usd={TYPE: 2.0, "ml.p5.48xlarge": 63.0}
        ),
        RegionPrices(region="us-east-1", as_of="2026-11-01", version="v1", usd={TYPE: 1.0}),
    ]
)
ROWS = [{"key": "a", "lr": 0.1}, {"key": "b", "lr": 0.2}]
JOB = ControllerJob(job_queue="controllers")


class HandedOver:
    """A laptop with a script beside its module, and an account with a queue and a definition."""

    def __init__(self, fake, folder):
        self.fake, self.folder, self.batch = fake, folder, ScriptedControllers()
        self.define("raysm-grid-controller")
        self.service = Service(aws(), clients=self._client)
        (folder / "helper.py").write_text("LR = 0.5\n")
        (folder / "train.py").write_text("import helper\n\nprint(helper.LR)\n")

    def _client(self, name):
        if name != "batch" and name not in self.fake.clients:
            raise ServiceError(f"{name} is away", is_transient=True)
        return self.batch if name == "batch" else self.fake.clients[name]

    def define(self, name, **container):
        container = {"image": "raysm:batch", "jobRoleArn": ROLE, **container}
        self.batch.register_job_definition(
            jobDefinitionName=name, type="container", containerProperties=container
        )

    def services(self, target):
        return self.service

    def request(self, rows=ROWS, *, options=None, workload=None, package=None, **more):
        template = Template(
            workload=workload or Script(str(self.folder / "train.py"), args=("{lr}",)),
            package=package,
            target=aws(),
            options={"limits": Limits(max_runtime_s=3600), **(options or {})},
        )
        fields = {
            "name": "drives",
            "regions": (REGION,),
            "instance_types": (TYPE,),
            "rules": Rules(brake=0),
        } | more
        return GridRequest(template=template, source=source_of(rows), **fields)

    def planned(self, *args, **more):
        request = self.request(*args, **more)
        rows, known = request.read_rows(), GridFacts(prices=TABLE, quotas={}, own_region=REGION)
        plan = plan_grid(request, rows, known.prices, known.quotas, today=DAY, own_region=REGION)
        return PlannedGrid(request=request, rows=rows, facts=known, plan=plan)

    def send(self, *args, job=JOB, **more):
        return send(self.planned(*args, **more), job, self.services)

    @property
    def handed_over(self):
        """URI of what the latest Batch job is told to take up."""
        return self.batch.submitted[-1]["containerOverrides"]["command"][5]

    def take_up(self, folder):
        folder.mkdir()
        return take_up(self.handed_over, self.service, folder, self.services)

    def end_jobs(self, now):
        """Have every job that runs end well."""
        moment = datetime.fromtimestamp(now, UTC)
        for name, job in self.fake.sagemaker.jobs.items():
            if job["answer"]["TrainingJobStatus"] == "InProgress":
                times = {
                    "TrainingStartTime": moment,
                    "LastModifiedTime": moment,
                    "BillableTimeInSeconds": 1800,
                }
                self.fake.sagemaker.end(name, "Completed", TrainingTimeInSeconds=1800, **times)


@contextlib.contextmanager
def handed_over(folder):
    """Yield the laptop, in a home of its own."""
    with fake_aws() as fake, in_home(folder / "home"):
        yield HandedOver(fake, folder)
