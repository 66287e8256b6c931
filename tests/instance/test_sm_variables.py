"""The ``SM_*`` variables are the union of the training toolkit's and of those of the SDK's container drivers."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.core.protocol.names import BASE_DIR
from raysm.core.request import Cluster, InstanceGroup, JobRequest
from raysm.features.training.request import TorchScript
from raysm.instance import environment
from raysm.instance.variables import user_variables

TOOLKIT = Path(__file__).parents[1] / "support" / "recorded" / "training_toolkit.json"
"""What sagemaker-training-toolkit 5.1.1.dev0 makes of the files below, on four CPUs, with JSON
values read."""

SOURCE = Path("/src")

GROUPS = [
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
    {
        "instance_group_name": "work",
        "instance_type": "ml.p4d.24xlarge",
        "hosts": ["algo-2", "algo-3"],
    },
]
RESOURCES = {
    "current_host": "algo-2",
    "current_instance_type": "ml.p4d.24xlarge",
    "current_group_name": "work",
    "hosts": ["algo-1", "algo-2", "algo-3"],
    "instance_groups": GROUPS,
    "network_interface_name": "eth0",
}
INPUTS = {
    "train": {
        "TrainingInputMode": "File",
        "S3DistributionType": "FullyReplicated",
        "RecordWrapperType": "None",
    },
    "my-data": {"TrainingInputMode": "File"},
}
USERS = {
    "epochs": "3",
    "batch-size": "16",
    "name": "relu",
    "on": "true",
    "layers": "[1, 2]",
    "none": "null",
}
SERVICES = {
    "sagemaker_program": "sub/train.py",
    "sagemaker_torch_distributed_enabled": "true",
    "sagemaker_container_log_level": "10",
}

SDK = """
import json, os, sys
import sagemaker.train.container_drivers.scripts.environment as drivers
base, out = sys.argv[1:]
folders = [name for name, value in vars(drivers).items() if isinstance(value, str) and value.startswith("/opt/ml")]
for name in folders:
    setattr(drivers, name, getattr(drivers, name).replace("/opt/ml", base))
drivers.num_cpus = lambda: 4
drivers.read_source_code_json = lambda: {"entry_script": "sub/train.py"}
drivers.read_distributed_json = lambda: {}
seen = {}
drivers.log_env_variables = lambda env_vars_dict: seen.update(env_vars_dict)
read = lambda name: json.load(open(f"{base}/input/config/{name}.json"))
drivers.set_env(read("resourceconfig"), read("inputdataconfig"), read("hyperparameters"), os.devnull)
json.dump({name: drivers.safe_serialize(value) for name, value in seen.items()}, open(out, "w"))
"""


def variables(base, hyperparameters):
    """Return raysm's variables of the instance algo-2, with JSON values read and the base folder as in a container."""
    config = base / "input" / "config"
    config.mkdir(parents=True)
    for name, content in (
        ("resourceconfig", RESOURCES),
        ("inputdataconfig", INPUTS),
        ("hyperparameters", hyperparameters),
    ):
        (config / f"{name}.json").write_text(json.dumps(content))
    cluster = Cluster(
        groups=tuple(
            InstanceGroup(one["instance_group_name"], one["instance_type"], 1) for one in GROUPS
        )
    )
    request = JobRequest(
        name="a-job", workload=TorchScript("sub/train.py"), cluster=cluster, hyperparameters_as_args=True,
        hyperparameters=USERS,
    )  # fmt: skip
    told = environment.read({BASE_DIR: str(base), "TRAINING_JOB_NAME": "a-job"})
    found = user_variables(told, request, SOURCE, cpus=4, gpus=0)
    return {name: read(value.replace(str(base), "/opt/ml")) for name, value in found.items()}


def read(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_each_variable_of_the_toolkit_is_there_with_its_value(tmp_path):
    toolkit = json.loads(TOOLKIT.read_text())
    found = variables(tmp_path / "ml", USERS | SERVICES)
    # Where the code lies; arguments have JSON's spelling; of None the toolkit makes an empty text,
    # and the SDK null.
    other = {
        "SM_MODULE_DIR": str(SOURCE),
        "SM_HP_NONE": None,
        "SM_USER_ARGS": [word for name, text in USERS.items() for word in (f"--{name}", text)],
    }
    whole = toolkit.pop("SM_TRAINING_ENV") | {"module_dir": str(SOURCE), "framework_module": ""}
    assert {name: found.get(name) for name in toolkit} == toolkit | other
    assert {name: found["SM_TRAINING_ENV"].get(name) for name in whole} == whole


def test_each_variable_of_the_sdks_container_drivers_is_there_with_its_value(tmp_path):
    if importlib.util.find_spec("sagemaker") is None:
        pytest.skip("the extra sdk is not installed")
    found = variables(tmp_path / "ml", USERS)
    done = subprocess.run(
        [sys.executable, "-c", SDK, str(tmp_path / "ml"), str(tmp_path / "out")],
        env={"TRAINING_JOB_NAME": "a-job", "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    texts = json.loads((tmp_path / "out").read_text().replace(str(tmp_path / "ml"), "/opt/ml"))
    sdk = {name: read(text) for name, text in texts.items()}
    sdk["SM_CHANNELS"].sort()
    whole = sdk.pop("SM_TRAINING_ENV")
    assert {name: found.get(name) for name in sdk} == sdk | {"SM_SOURCE_DIR": str(SOURCE)}
    assert {name: found["SM_TRAINING_ENV"].get(name) for name in whole} == whole
