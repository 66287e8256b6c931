"""``raysm image``: print the commands that build an image for AWS and push it to Amazon ECR."""

from raysm.cli.arguments import Arguments
from raysm.cli.console import Console
from raysm.core.client.images import default_image
from raysm.core.request import Cluster

COMMANDS = """\
# In the root of a clone of raysm; ACCOUNT is the number of your AWS account.
aws ecr get-login-password --region {region} | \
docker login --username AWS --password-stdin {registry}
docker build --platform linux/amd64 -f containers/Dockerfile --build-arg BASE_IMAGE={base} \\
    --build-arg BUILD_IMAGE={base} -t {own} .
aws ecr create-repository --repository-name raysm --region {region}
aws ecr get-login-password --region {region} | docker login --username AWS --password-stdin {ours}
docker push {own}
# Then: raysm run ... --image {own}"""


def run(arguments: Arguments, console: Console) -> None:
    kind = "gpu" if arguments.gpu else "cpu"
    image, registry = default_image(
        Cluster("ml.g5.xlarge" if arguments.gpu else "ml.m5.large"), arguments.region
    )
    # The domain is that of AWS's own registry: amazonaws.com.cn in China.
    ours = f"ACCOUNT{registry[registry.index('.') :]}"
    base = image.uri(registry)
    own = f"{ours}/raysm:{kind}"
    print(
        COMMANDS.format(
            region=arguments.region, registry=registry, kind=kind, base=base, ours=ours, own=own
        )
    )
