"""Tables of the reference, from the code: paths, columns, endings, variables, checks and policies."""

import inspect
import json
import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from raysm.core.protocol import names
from raysm.core.protocol.job_api import APIS
from raysm.core.protocol.paths import Paths
from raysm.features.account.checks import CHECKS
from raysm.features.account.permissions import ROLE, USER, Grant, policy, trust
from raysm.features.grid import endings
from raysm.features.grid.sources.columns import COLUMNS
from raysm.instance import environment
from raysm.instance.variables import user_variables
from tests.support.bootstraps import request, write_training

TOLD = ("STATE", "MEASURE", "FAILURE_RECORD")
"""Variables that the page describes in words, or that are raysm's own."""


def paths() -> str:
    training, processing = (Paths(api=api) for api in APIS)
    rows = []
    for name, item in vars(Paths).items():
        if isinstance(item, property):
            meaning = _text(item.fget)
            # A file that only one of the two kinds of jobs has says so in its docstring.
            cells = [
                "" if f"({other} only)" in meaning else f"`{getattr(layout, name)}`"
                for layout, other in ((training, "processing"), (processing, "training"))
            ]
            rows.append([re.sub(r" \(\w+ only\)", "", meaning), *cells])
    return table(["what it is", "in a Training job", "in a Processing job"], rows)


def columns() -> str:
    return table(
        ["column", "what it says"], [[f"`{name}`", each.summary] for name, each in COLUMNS.items()]
    )


def ends() -> str:
    rows = [
        [f"`{each.name}`", f"`{each.row_state}`", "yes" if each.uses_retry else "", each.advice]
        for each in endings.ENDINGS.values()
    ]
    return table(["end", "the row then", "uses a retry", "what to do"], rows)


def deterministic() -> str:
    return ", ".join(f"`{name}`" for name in endings.DETERMINISTIC) + "."


def example() -> str:
    """Return what user code is told on ``algo-2`` of two instances."""
    with tempfile.TemporaryDirectory() as base:
        paths = write_training(
            Path(base),
            "algo-2",
            ["algo-1", "algo-2"],
            hyperparameters={"lr": "0.1"},
            network_interface_name="eth0",
        )
        paths.input_data_config.write_text(json.dumps({"raysm": {}, "train": {}}))
        found = user_variables(
            environment.read({"SAGEMAKER_BASE_DIR": base, "TRAINING_JOB_NAME": "a-job"}),
            request(2, script="train.py", args=("--epochs", "10")),
            Path("/opt/ml/input/data/raysm/source"),
            cpus=4,
            gpus=1,
        )
        texts = {
            name: value.replace(str(paths.base), "/opt/ml") for name, value in sorted(found.items())
        }
    rows = [
        [f"`{name}`", f"`{value if len(value) <= 60 else value[:57] + '…'}`"]
        for name, value in texts.items()
        if value
    ]
    return table(["variable", "for example"], rows)


def variables() -> str:
    rows = [
        [name, text] for name, value, text in _constants() if value.isupper() and name not in TOLD
    ]
    return table(
        ["variable", "meaning"], [[f"`{getattr(names, name)}`", text] for name, text in rows]
    )


def labels() -> str:
    rows = [
        [f"`{value}`", text.partition(": ")[2]]
        for _, value, text in _constants()
        if text.startswith("Ray label")
    ]
    return table(["label", "meaning"], rows)


def checks() -> str:
    rows = [
        [check.name, _text(check.look).removeprefix("Yield "), "yes" if check.asks else ""]
        for check in CHECKS
    ]
    return table(["check", "what it tells", "asks AWS"], rows)


def user_policy() -> str:
    return _policy(USER)


def role_policy() -> str:
    return f"{_policy(ROLE)}\n\nIts trust policy:\n\n{_json(trust('ACCOUNT'))}"


PARTS = (
    paths,
    columns,
    ends,
    deterministic,
    example,
    variables,
    labels,
    checks,
    user_policy,
    role_policy,
)


def _policy(grants: Sequence[Grant]) -> str:
    rows = [[f"`{grant.purpose}`", grant.meaning] for grant in grants]
    return f"{table(['statement', 'what for'], rows)}\n\n{_json(policy(grants, placeholders()))}"


def _json(document: object) -> str:
    return f"```json\n{json.dumps(document, indent=1)}\n```"


def _constants() -> Iterable[tuple[str, str, str]]:
    """Yield name, value and text of the constants of ``raysm.core.protocol.names`` that have a text."""
    for found in re.finditer(
        r'^([A-Z_]+) = "([^"\n]+)"\n"""(.+?)"""', inspect.getsource(names), re.MULTILINE | re.DOTALL
    ):
        yield found[1], found[2], " ".join(found[3].split())


def _text(item: object) -> str:
    return " ".join((inspect.getdoc(item) or "").split())


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [
        titles,
        ["---"] * len(titles),
        *([each.replace("|", "\\|").replace("``", "`") for each in row] for row in rows),
    ]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def placeholders() -> dict[str, tuple[str, ...]]:
    """Return a word in capitals for each placeholder, for policies in the documentation."""
    region, account = "REGION", "ACCOUNT"
    return {
        "partition": ("aws",),
        "region": (region,),
        "account": (account,),
        "project": ("PROJECT",),
        "bucket": ("BUCKET",),
        "default_bucket": ("BUCKET",),
        "role": (f"arn:aws:iam::{account}:role/ROLE",),
        "repository": (f"arn:aws:ecr:{region}:{account}:repository/REPOSITORY",),
        "input_bucket": ("INPUT-BUCKET",),
        "input_prefix": ("INPUT-BUCKET/PREFIX",),
        # Few jobs have one: results are below the bucket, which has its own line.
        "output_prefix": (),
        "output_key": (f"arn:aws:kms:{region}:{account}:key/OUTPUT-KEY",),
        "bucket_key": (f"arn:aws:kms:{region}:{account}:key/BUCKET-KEY",),
        "input_key": (f"arn:aws:kms:{region}:{account}:key/INPUT-KEY",),
        "volume_key": (f"arn:aws:kms:{region}:{account}:key/VOLUME-KEY",),
        "subnet": ("SUBNET",),
        # Any word: these are in no resource, and only say that the line is needed.
        "remote_debug": ("yes",),
        "other_work": ("yes",),
        "domain": (f"arn:aws:codeartifact:{region}:{account}:domain/DOMAIN",),
        "package_repository": (f"arn:aws:codeartifact:{region}:{account}:repository/DOMAIN/NAME",),
        "mlflow": (f"arn:aws:sagemaker:{region}:{account}:mlflow-tracking-server/NAME",),
        "mlflow_app": (f"arn:aws:sagemaker:{region}:{account}:mlflow-app/NAME",),
    }
