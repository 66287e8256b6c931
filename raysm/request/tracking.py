"""Where metrics are mirrored to beside raysm's own record: one object for each kind of place, found by its URI.

What flows in is the option ``tracking``, what flows out is who writes there, and what that takes. To add a kind is to
add a value here, and its line in ``PLACES``. MLflow's folder of files is none of them: MLflow gave it up in favor of
SQLite (https://mlflow.org/docs/latest/self-hosting/architecture/backend-store/).
"""

import re
from dataclasses import dataclass

from raysm.errors import InvalidRequest

__all__ = ["PLACES", "TrackingPlace", "check_tracking", "place_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingPlace:
    """One kind of place."""

    form: re.Pattern[str]
    """The whole URI."""
    example: str
    """How it is written, for people."""
    is_here: bool
    """Whether it is written where the job was sent, by whoever follows it; else on the head."""
    packages: tuple[str, ...] = ()
    """Modules that the head imports for it."""
    is_of_service: bool = False
    """Whether the service itself is told of it (``MlflowConfig``), and shows the run with the job."""


SQLITE = TrackingPlace(
    # A tag of the job carries it, so that whoever attaches can go on writing: only what a tag may hold.
    form=re.compile(r"sqlite:///[A-Za-z0-9 _.:/=+@-]{1,230}"),
    example="sqlite:///mlflow.db",
    is_here=True,
)
"""A file of this machine, which no instance can write."""

SERVER = TrackingPlace(
    form=re.compile(r"https?://[^\s]{1,1000}"),
    example="http://mlflow.example:5000",
    is_here=False,
    packages=("mlflow",),
)
"""An MLflow server that the instances can reach."""

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html
MANAGED = TrackingPlace(
    form=re.compile(r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:mlflow-[a-zA-Z-]*/[a-zA-Z0-9-]+"),
    example="arn:aws:sagemaker:REGION:ACCOUNT:mlflow-tracking-server/NAME",
    is_here=False,
    packages=("mlflow", "sagemaker_mlflow"),
    is_of_service=True,
)
"""SageMaker's own MLflow."""

PLACES = (SQLITE, SERVER, MANAGED)
"""All of them."""

USER = re.compile(r"[\w+.-]+://[^/?#]*@")
"""How an address begins that says who opens it: a token may stand alone where a name does."""


def place_of(tracking: str) -> TrackingPlace:
    """Return the kind of place that a URI names.

    Raises:
        InvalidRequest: It is of none of them.
    """
    for place in PLACES:
        if place.form.fullmatch(tracking):
            return place
    # Before all else, as of an index: the other message shows the address, and a password with it.
    _refuse_secret(tracking)
    raise InvalidRequest(
        f"tracking={tracking!r} is not a place for metrics: give "
        f"{', '.join(place.example for place in PLACES)}; MLflow's folder of files is not one of them, it gave it up"
    )


def check_tracking(tracking: str) -> None:
    """Refuse what metrics cannot be mirrored to, or what has a secret in it.

    Raises:
        InvalidRequest: It is no such place, or a password stands in it.
    """
    place_of(tracking)
    # The URI is part of the request, which the payload, the log and dry runs show.
    _refuse_secret(tracking)


def _refuse_secret(tracking: str) -> None:
    if USER.match(tracking):
        raise InvalidRequest(
            "tracking has a password in it, or a token, which others would read: give the address alone, and let the "
            "job's image or role bring the credentials (MLFLOW_TRACKING_TOKEN)"
        )
