"""The arguments of ``raysm migrate``."""

from pathlib import Path
from typing import Any

from raysm.cli.parser import Family, add, add_command


def add_migrate(commands: Any) -> None:
    command = add_command(
        commands,
        "migrate",
        "print the raysm commands that are equal to a script of the SageMaker SDK or of ssm",
        run="raysm.features.migrate.command:run",
        family=Family.SETUP,
        examples="""\
# a script with an Estimator, a ModelTrainer or a Processor; it is read, and never run
raysm migrate launch.py
# a shell script with commands of simple-sagemaker
raysm migrate run.sh""",
    )
    add(command, "FILE", "a Python script, or a shell script with ssm commands", type=Path)
