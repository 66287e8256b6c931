"""The names of one case's things, as the policies of ``raysm.client.permissions`` take them.

What flows in is a case, what flows out are names by placeholder: of this account, or words in capitals where nobody
said them yet.
"""

from collections.abc import Callable

from raysm.client.channel_objects import manifest_at
from raysm.client.doctor.case import Case
from raysm.client.images.ecr import registry_in
from raysm.client.permissions import Names
from raysm.client.storage import Storage, split
from raysm.errors import InvalidRequest, RaysmError
from raysm.request import Input
from raysm.request.external import CodeArtifact, place_of

__all__ = ["key_arn", "names_of", "placeholders", "repository_arn"]

MLFLOW_APP = "mlflow-app"
"""Of an ARN's resource: MLflow as an app, which came after the tracking servers and takes an action of its own."""


def placeholders() -> dict[str, tuple[str, ...]]:
    """Return a word in capitals for each placeholder: the policies as a reader of the documentation sees them."""
    region, account = "REGION", "ACCOUNT"
    return {
        "partition": ("aws",),
        "region": (region,),
        "account": (account,),
        "bucket": ("BUCKET",),
        "role": (f"arn:aws:iam::{account}:role/ROLE",),
        "repository": (f"arn:aws:ecr:{region}:{account}:repository/REPOSITORY",),
        "input_bucket": ("INPUT-BUCKET",),
        "input_prefix": ("INPUT-BUCKET/PREFIX",),
        # Few jobs have one: results lie below the bucket, which has its own line.
        "output_prefix": (),
        "output_key": (f"arn:aws:kms:{region}:{account}:key/OUTPUT-KEY",),
        "volume_key": (f"arn:aws:kms:{region}:{account}:key/VOLUME-KEY",),
        "subnet": ("SUBNET",),
        # Any word will do: it stands in no resource, and only says that the line is needed.
        "remote_debug": ("yes",),
        "domain": (f"arn:aws:codeartifact:{region}:{account}:domain/DOMAIN",),
        "package_repository": (f"arn:aws:codeartifact:{region}:{account}:repository/DOMAIN/NAME",),
        "mlflow": (f"arn:aws:sagemaker:{region}:{account}:mlflow-tracking-server/NAME",),
        "mlflow_app": (f"arn:aws:sagemaker:{region}:{account}:{MLFLOW_APP}/NAME",),
    }


def names_of(case: Case) -> Names:
    """Return the names of a case's things; of what only AWS could tell and does not, the word in capitals."""
    intent, security, words = case.intent, case.intent.security, placeholders()
    # Local data is uploaded into raysm's part of the bucket, which has a line of its own.
    inputs = [uri for source in intent.inputs.values() for uri in _addresses(case, source) if uri.startswith("s3://")]
    outputs = [uri for uri in (intent.output_uri, intent.checkpoint_uri) if uri and uri.startswith("s3://")]
    region = _told(lambda: case.region, words["region"][0])
    account = _told(lambda: case.service.account, words["account"][0])
    partition = _told(lambda: case.partition, words["partition"][0])
    return {
        "partition": (partition,),
        "region": (region,),
        "account": (account,),
        "bucket": (_told(lambda: case.bucket.name, words["bucket"][0]),),
        "role": (case.role,) if case.role else words["role"],
        "repository": (_told(lambda: repository_arn(case), words["repository"][0]),),
        "input_bucket": tuple(dict.fromkeys(split(uri)[0] for uri in inputs)),
        "input_prefix": tuple(uri.removeprefix("s3://") for uri in inputs),
        "output_prefix": tuple(uri.removeprefix("s3://") for uri in outputs),
        "output_key": _key(security.output_kms_key, partition, region, account),
        "volume_key": _key(security.volume_kms_key, partition, region, account),
        "subnet": security.subnets,
        "remote_debug": ("yes",) if security.remote_debug else (),
        "domain": _domain(intent.pip_index),
        "package_repository": (str(intent.pip_index),) if _domain(intent.pip_index) else (),
        "mlflow": _mlflow(intent.tracking),
        "mlflow_app": tuple(arn for arn in _mlflow(intent.tracking) if f":{MLFLOW_APP}/" in arn),
    }


def repository_arn(case: Case) -> str:
    """Return the repository of the image.

    Raises:
        InvalidRequest: There is no image, or it lies elsewhere.
    """
    uri = case.image
    repository = registry_in(uri)
    if repository is None:
        raise InvalidRequest(f"the image {uri!r} is not in Amazon ECR; push it there")
    return f"arn:{case.partition}:ecr:{repository.region}:{repository.account}:repository/{repository.name}"


def key_arn(key: str, partition: str, region: str, account: str) -> str:
    """Return a key as policies name it: they take neither a bare ID nor an alias."""
    if key.startswith("arn:") and ":alias/" not in key:
        return key
    # Which key an alias means only KMS could tell.
    return f"arn:{partition}:kms:{region}:{account}:key/{'*' if 'alias/' in key else key}"


def _key(key: str | None, partition: str, region: str, account: str) -> tuple[str, ...]:
    return () if key is None else (key_arn(key, partition, region, account),)


def _addresses(case: Case, source: Input) -> tuple[str, ...]:
    """Return the prefixes that the job reads of an input: of a manifest its own, and that of what it lists."""
    if not source.manifest:
        return (source.uri,)
    prefix = _told(lambda: manifest_at(source.uri, Storage(case.service)).prefix, "")
    return (source.uri, prefix)


def _told(ask: Callable[[], str], word: str) -> str:
    try:
        return ask()
    except RaysmError:  # a policy can be printed without credentials
        return word


def _domain(index: str | None) -> tuple[str, ...]:
    """Return the domain of a repository of CodeArtifact, which gives the token."""
    repository = None if index is None else CodeArtifact.of(index)
    if repository is None:
        return ()
    return (f"{repository.arn.partition(':repository/')[0]}:domain/{repository.domain}",)


def _mlflow(tracking: str | None) -> tuple[str, ...]:
    """Return the ARN that metrics are mirrored to; nothing where they go elsewhere, which IAM does not guard."""
    return (tracking,) if tracking is not None and place_of(tracking).is_of_service else ()
