"""The arguments of ``raysm run``."""

from typing import Any

from raysm.cli.options import (
    IN_STATE,
    METRIC,
    SOURCE,
    STOP_ON_NAN,
    Flag,
    add_script_command,
    add_sending,
)
from raysm.features.script.request import Script

FLAGS = (
    *SOURCE,
    METRIC,
    STOP_ON_NAN,
    Flag(
        "--ray-init",
        "workload.ray_init",
        "join the cluster first, for a script without ray.init() or with ray.init(num_cpus=…)",
    ),
    IN_STATE,
    Flag(
        "--drop-files",
        "workload.drop_files",
        "keep only $SM_MODEL_DIR, not what the script leaves where it runs",
    ),
)


def add_run(commands: Any) -> None:
    command = add_script_command(
        commands,
        "run",
        "run a script or a command on the head of the cluster; ray.init() in a Python script joins "
        "the cluster",
        Script,
        FLAGS,
        examples="""\
# on the head of three emulated instances; \
files that the script writes to $SM_MODEL_DIR are copied to out/
raysm run main.py --instances 3 --output out/ -- --greeting Hello
# with input data at $SM_CHANNEL_TRAIN, and with a package
raysm run main.py --input train=data/ --requirement scikit-learn
# on AWS, without waiting for the end
raysm run main.py --on aws --role arn:aws:iam::123456789012:role/jobs \
--instance-type ml.c5.4xlarge --detach""",
        overview=[
            "raysm run tune.py --instances 3 -- --trials 10",
            "raysm run train.py --on aws --role arn:aws:iam::…:role/… --image … "
            "--instance-type ml.c5.4xlarge --instances 10",
        ],
    )
    add_sending(command)
