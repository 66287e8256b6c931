"""Lets somebody into the instances of a job that runs, or shuts them again: what flows in is its chain.

AWS starts its session agent in the containers, and lets in whoever may start a session of Systems Manager:
https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
"""

from raysm.client.chain import Chain
from raysm.client.description import SecondaryStatus
from raysm.errors import InvalidRequest, ServiceError
from raysm.request import Ports

__all__ = ["session_commands", "switch_remote_debugging"]

SWITCHABLE = (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING)
"""While a job does these, the page above says, it may be switched."""


def switch_remote_debugging(chain: Chain, *, enabled: bool) -> None:
    """Switch the remote debugging of a job that runs.

    Raises:
        InvalidRequest: Its API has no remote debugging, the job is isolated, or it is not running just now.
        ServiceError: The service refused.
    """
    name, description = chain.name, chain.describe()
    if chain.api.update is None:
        raise InvalidRequest(f"{name} is a {chain.api.title} job, which has no remote debugging; a Training job has")
    if enabled and description.answer.get("EnableNetworkIsolation"):
        raise InvalidRequest(f"{name} has no network (security.isolation), so remote debugging cannot work")
    if description.secondary not in SWITCHABLE:
        raise InvalidRequest(
            f"{name} is {description.secondary or description.status}: remote debugging is switched while a job is "
            f"{' or '.join(SWITCHABLE)}"
        )
    try:
        chain.service.update(chain.api, name, RemoteDebugConfig={"EnableRemoteDebug": enabled})
    except ServiceError as error:
        # An account that forbids remote debugging refuses by the same code as one that has not granted the call.
        if not error.code.startswith("AccessDenied"):
            raise
        raise ServiceError(
            f"{error}; that is sagemaker:UpdateTrainingJob, which an account may allow only where "
            "sagemaker:EnableRemoteDebug is false",
            code=error.code,
        ) from error


def session_commands(job: str) -> tuple[str, str]:
    """Return the commands that open a shell in the first instance of ``job``, and that bring its dashboard here."""
    port = Ports().dashboard
    shell = f"aws ssm start-session --target sagemaker-training-job:{job}_algo-1"
    parameters = f'{{"portNumber":["{port}"],"localPortNumber":["{port}"]}}'
    return shell, f"{shell} --document-name AWS-StartPortForwardingSession --parameters '{parameters}'"
