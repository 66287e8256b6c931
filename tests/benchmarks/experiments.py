"""How long the table of jobs and their copy in MLflow take: 1,000 jobs for the first time, and again.

    python3 tests/benchmarks/experiments.py [--jobs 1000] [--list-ms 0] [--mlflow]

The service is a fake in this process; ``--list-ms`` is the time that it takes for a page of a
hundred jobs. ``--mlflow`` also copies the jobs into a new MLflow store, and writes 20 of them by
MLflow's own client to compare.
"""

import argparse
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from raysm.core.client.submit import submit
from raysm.core.protocol.events import Metric, line
from raysm.core.protocol.job_api import TRAINING
from raysm.features.experiments.listing import Choice, experiments
from raysm.features.experiments.table import Jobs
from raysm.features.experiments.ui_command import MlflowStore, records
from raysm.features.script.request import Script
from raysm.testing import Answer, FakeSageMaker

METRICS = ("loss", "accuracy", "rows_per_s", "lr", "epoch_s")
STEPS = 50
ROUNDS = 5


class Listing(FakeSageMaker):
    """A fake whose lists take their time."""

    def __init__(self, home, page_s):
        super().__init__(home)
        self._page_s = page_s

    def summaries(self, api, **options):
        # The first page takes its time also where nothing is in it.
        time.sleep(self._page_s)
        for number, item in enumerate(super().summaries(api, **options)):
            if number % 100 == 0 and number:
                time.sleep(self._page_s)
            yield item


def filled(home, jobs, page_s):
    """Return a fake with so many jobs that have ended, each with a few metrics."""
    fake = Listing(home, page_s)
    (home / "train.py").touch()
    values = [
        Metric(name=name, value=1 / (step + 1), step=step)
        for name in METRICS
        for step in range(STEPS)
    ]
    fake.answer("script", Answer(lines=[line(value) for value in values]))
    sent = submit(Script(str(home / "train.py"), args=["--lr", "0.1"]), on=fake).name
    tags = fake.tags(fake.jobs[sent]["TrainingJobArn"])
    # As if sent so often: to send them would take minutes.
    for number in range(jobs - 1):
        name = f"{sent}-{number}"
        arn = TRAINING.arn(region="us-east-1", account="123456789012", name=name)
        # The list is the latest first, and what is added last is the latest.
        created = fake.jobs[sent]["CreationTime"] + timedelta(minutes=1 + number)
        fake.jobs[name] = fake.jobs[sent] | {
            "TrainingJobName": name,
            "TrainingJobArn": arn,
            "CreationTime": created,
        }
        fake.lines[name] = fake.lines[sent]
    fake.tags = lambda arn: tags
    return fake


def timed(action):
    began_s = time.perf_counter()
    value = action()
    return time.perf_counter() - began_s, value


def by_client(store, found):
    """Write runs by MLflow's client, as a job with ``tracking=`` does."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric as Value
    from mlflow.entities import Param

    client = MlflowClient(tracking_uri=store.uri, registry_uri=store.uri)
    for record in found:
        run = client.create_run("0", run_name=record.row.name).info.run_id
        points = [
            Value(n, v, int(t * 1000), s)
            for n, curve in record.curves().items()
            for s, t, v in curve
        ]
        client.log_batch(
            run, metrics=points, params=[Param(k, str(v)) for k, v in record.row.parameters.items()]
        )
        client.set_terminated(run)


def copy(folder, fake, jobs):
    store = MlflowStore(folder / "mlflow")
    first_s, count = timed(lambda: store.update(records(fake, jobs)))
    again = [timed(lambda: store.update(records(fake, jobs))) for _ in range(ROUNDS)]
    assert not any(count for _, count in again)
    print(f"{count} runs into MLflow     {first_s:7.2f} s, its import and its tables included")
    print(
        f"again                    {statistics.median(seconds for seconds, _ in again):7.2f} s (median of {ROUNDS})"
    )
    client_s, _ = timed(lambda: by_client(store, records(fake, 20)))
    print(f"20 runs by its client    {client_s:7.2f} s")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--list-ms", type=float, default=0.0)
    parser.add_argument("--mlflow", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fake = filled(Path(folder), arguments.jobs, arguments.list_ms / 1000)
        choice = Choice(limit=arguments.jobs)
        first_s, _ = timed(lambda: experiments(fake, choice))
        again = [timed(lambda: experiments(fake, choice)) for _ in range(ROUNDS)]
        rows = again[-1][1]
        table_s, html = timed(lambda: Jobs(rows, fake)._repr_html_())
        print(
            f"{len(rows)} jobs of {len(METRICS)} metrics, a page of the list in {arguments.list_ms:g} ms"
        )
        print(f"read for the first time  {first_s:7.2f} s")
        print(
            f"from what is kept        {statistics.median(seconds for seconds, _ in again):7.2f} s (median of {ROUNDS})"
        )
        print(f"as HTML                  {table_s:7.2f} s, {len(html) / 1000:.0f} kB")
        if arguments.mlflow:
            copy(Path(folder), fake, arguments.jobs)


if __name__ == "__main__":
    main()
