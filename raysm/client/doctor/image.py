"""The container image: whether it is in Amazon ECR, in the job's region, under this tag."""

from collections.abc import Iterator

from raysm.client.doctor.case import Case
from raysm.client.doctor.finding import Finding, bad, good, unknown
from raysm.client.images.ecr import Repository, registry_in
from raysm.errors import ServiceError

__all__ = ["look_at_image"]


def look_at_image(case: Case) -> Iterator[Finding]:
    """Yield whether the image is there."""
    if case.service.target.image is None and case.intent.cluster is None:
        yield unknown("none is named, and AWS's own depends on the instances", "--image URI, or --instance-type TYPE")
        return
    uri = case.image
    repository = registry_in(uri)
    if repository is None:
        yield bad(
            f"{uri} is not in Amazon ECR, from where alone SageMaker takes images",
            f"push it to ACCOUNT.dkr.ecr.{case.region}.amazonaws.com/NAME:TAG: raysm image build --push",
        )
    elif repository.region != case.region:
        yield bad(
            f"{uri} lies in {repository.region}, the job runs in {case.region}",
            f"name the image of {case.region}, or copy it there: docker pull, tag and push",
        )
    else:
        yield _look_up(case, uri, repository)


def _look_up(case: Case, uri: str, repository: Repository) -> Finding:
    tag, _, digest = uri.removeprefix(f"{repository.host}/{repository.name}").partition("@")
    # With a digest its tag says nothing any more; without either, docker means latest.
    image_id = {"imageDigest": digest} if digest else {"imageTag": tag.removeprefix(":") or "latest"}
    where = f"--registry-id {repository.account} --region {case.region}"
    try:
        # The very call by which the role pulls it: whoever may describe images need not be allowed this.
        answer = case.call(
            "ecr",
            "batch_get_image",
            registryId=repository.account,
            repositoryName=repository.name,
            imageIds=[image_id],
        )
    except ServiceError as error:
        if error.code != "RepositoryNotFoundException":
            raise
        return bad(
            f"there is no repository {repository.name} of {repository.account} in {case.region}",
            f"aws ecr describe-repositories {where} shows what there is",
        )
    if answer.get("images"):
        return good(uri)
    listing = f"aws ecr list-images --repository-name {repository.name} {where} shows what there is"
    return bad(f"there is no image {uri}", listing)
