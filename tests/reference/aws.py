"""The pages about an account on AWS: what the doctor looks at, and the policies of the user and the role."""

import json

from raysm.client.account.permissions import ROLE, USER, policy, trust
from raysm.client.doctor.checks import CHECKS
from tests.reference.docstrings import cell, code, read, table

AUTHORIZATION = "https://docs.aws.amazon.com/service-authorization/latest/reference/reference_policies_actions-resources-contextkeys.html"
EXECUTION = "https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html"


def pages():
    return {"doctor.md": _doctor(), "permissions.md": _permissions()}


def _doctor():
    rows = [[cell(check.name), cell(read(check.look).text.removeprefix("Yield ")), _asks(check)] for check in CHECKS]
    parts = [
        "# What the doctor looks at",
        "`raysm doctor --on aws` carries out these checks, and `raysm doctor --for job.json` carries them out for "
        "exactly one job. What a job does not have (subnets, keys, inputs) is not looked at.",
        table(["check", "what it tells", "asks AWS"], rows),
        "| line | state | meaning |\n| --- | --- | --- |\n"
        "| `ok` | `good` | it will do |\n"
        "| `BAD` | `bad` | a job would fail for it; the remedy stands below, as a command or a policy |\n"
        "| `none` | `bad`, not `needed` | it is not there, and jobs run without it |\n"
        "| `?` | `unknown` | it could not be looked at: the question was refused, or nobody answered |",
        "The exit status is 0 where nothing stands in the way, 1 where something does, and 3 where nothing does that "
        "could be looked at, but not all could be. `--json` prints each finding with its name, state, text, remedy, "
        "and whether it is needed. Nothing of this was seen on AWS: the rules are those of AWS's documentation.",
    ]
    return "\n\n".join(parts) + "\n"


def _asks(check):
    return "yes" if check.asks else ""


def _permissions():
    parts = [
        "# Permissions on AWS",
        "What whoever sends jobs has to be allowed, and what the role that they run as; with the names of your own "
        "account in place of the words in capitals: `raysm doctor --on aws … --policy user`, and `--policy role`. "
        "Statements about what a job does not have fall away there.",
        "The user's is made from the calls that raysm's tests record, a line for every call and a call for every line; "
        f"the actions are those of the [Service Authorization Reference]({AUTHORIZATION}), the role's those of "
        f"[SageMaker's guide]({EXECUTION}). Neither was tried on AWS.",
        "## Of the user",
        _described(USER),
        _json(policy(USER, placeholders())),
        "## Of the role",
        "SageMaker takes the role on; what runs in the instances may use it too.",
        _described(ROLE),
        _json(policy(ROLE, placeholders())),
        "Its trust policy:",
        _json(trust("ACCOUNT")),
    ]
    return "\n\n".join(parts) + "\n"


def _described(grants):
    rows = [[code(grant.purpose), cell(grant.meaning)] for grant in grants]
    return table(["statement", "what for"], rows)


def _json(document):
    return f"```json\n{json.dumps(document, indent=1)}\n```"


def placeholders() -> dict[str, tuple[str, ...]]:
    """Return a word in capitals for each placeholder, for policies in the documentation."""
    region, account = "REGION", "ACCOUNT"
    return {
        "partition": ("aws",),
        "region": (region,),
        "account": (account,),
        "project": ("PROJECT",),
        "bucket": ("BUCKET",),
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
        # Any word: it is in no resource, and only says that the line is needed.
        "remote_debug": ("yes",),
        "domain": (f"arn:aws:codeartifact:{region}:{account}:domain/DOMAIN",),
        "package_repository": (f"arn:aws:codeartifact:{region}:{account}:repository/DOMAIN/NAME",),
        "mlflow": (f"arn:aws:sagemaker:{region}:{account}:mlflow-tracking-server/NAME",),
        "mlflow_app": (f"arn:aws:sagemaker:{region}:{account}:mlflow-app/NAME",),
    }
