"""What a controller sends to a region: a script's job, prepared for the client's fake of AWS."""

from raysm.core.client.submit import prepare
from raysm.core.request import Cluster
from raysm.features.grid.region import token_of
from raysm.features.script.request import Script

SECRET = "of the grid"


def preparing(service, folder):
    """Return what prepares the job of a row's attempt, of a script that is written to ``folder``."""
    script = folder / "train.py"
    script.write_text("print(1)\n")

    def prepared(row, attempt):
        return prepare(
            Script(str(script)),
            cluster=Cluster(attempt.instance_type, count=attempt.count),
            on=service,
            job_name=attempt.name,
            token=token_of(SECRET, attempt),
            tags=dict(row.tags),
            environment=dict(row.environment),
        )

    return prepared
