"""Services outside of the job that a request names: pip's index, and an MLflow.

Metrics are copied to the MLflow.

Both are addresses that travel in the request, so neither may contain a secret.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from raysm.errors import InvalidRequest

# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awscodeartifact.html
ARN = re.compile(
    r"arn:aws[\w-]*:codeartifact:([a-z0-9-]+):(\d{12}):repository/([a-z0-9-]+)/([A-Za-z0-9._-]+)"
)


@dataclass(frozen=True, slots=True)
class CodeArtifact:
    """A repository of AWS CodeArtifact."""

    arn: str
    region: str
    account: str
    domain: str
    name: str

    @classmethod
    def of(cls, index: str) -> "CodeArtifact | None":
        """Parse the ARN of a repository; return None if ``index`` is an address."""
        match = ARN.fullmatch(index)
        return cls(index, *match.groups()) if match else None


def check_index(index: str) -> None:
    if CodeArtifact.of(index):
        return
    try:
        parts = urlsplit(index)
    except ValueError as error:
        # The address is not shown, because it may contain a password anywhere.
        raise InvalidRequest(
            f"pip_index is not an address: {error}; write https://pip.example/simple"
        ) from None
    # Checked first, because the other message shows the address with its password.
    if parts.username or parts.password:
        raise InvalidRequest(
            "pip_index holds a user or a password, which all readers of the "
            "job's payload would see; give a CodeArtifact repository by its ARN, "
            "for which the job's role gets a token, or an index of your network"
        )
    # The text itself is checked for blanks, because urlsplit drops line breaks and tabs.
    if (
        parts.scheme not in ("https", "http")
        or not parts.hostname
        or any(letter.isspace() for letter in index)
    ):
        raise InvalidRequest(
            "pip_index must be the https:// address of an index, "
            "as in https://pip.example/simple, or the ARN of a CodeArtifact repository, "
            f"arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/NAME; got {index!r}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingPlace:
    """One kind of MLflow store that metrics are copied to."""

    form: re.Pattern[str]
    example: str
    is_here: bool
    """True if the client that follows the job writes the metrics, on its machine; otherwise the
    head does."""
    packages: tuple[str, ...] = ()
    """Modules that the head needs to write the metrics."""
    is_of_service: bool = False
    """True if the API call names the place (``MlflowConfig``), so that the console shows the run
    with the job."""


SQLITE = TrackingPlace(
    # The URI is stored in a tag of the job for later clients, so it may contain only characters of
    # a tag.
    form=re.compile(r"sqlite:///[A-Za-z0-9 _.:/=+@-]{1,230}"),
    example="sqlite:///mlflow.db",
    is_here=True,
)

_SERVER_FORM = re.compile(r"https?://[^\s]{1,1000}")
SERVER = TrackingPlace(
    form=_SERVER_FORM, example="http://mlflow.example:5000", is_here=False, packages=("mlflow",)
)

# https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_MlflowConfig.html
MANAGED = TrackingPlace(
    form=re.compile(
        r"arn:aws[a-z\-]*:sagemaker:[a-z0-9\-]*:[0-9]{12}:mlflow-[a-zA-Z-]*/[a-zA-Z0-9-]+"
    ),
    example="arn:aws:sagemaker:REGION:ACCOUNT:mlflow-tracking-server/NAME",
    is_here=False,
    packages=("mlflow", "sagemaker_mlflow"),
    is_of_service=True,
)

PLACES = (SQLITE, SERVER, MANAGED)
USER = re.compile(r"[\w+.-]+://[^/?#]*@")
"""The beginning of an address with credentials: a user or a token before the @."""


def place_of(tracking: str) -> TrackingPlace:
    for place in PLACES:
        if place.form.fullmatch(tracking):
            return place
    # Checked first, because the other message shows the address with its password.
    _refuse_secret(tracking)
    raise InvalidRequest(
        f"tracking={tracking!r} is not a place for metrics: "
        f"give {', '.join(place.example for place in PLACES)}; "
        "MLflow itself no longer supports a folder of files"
    )


def check_tracking(tracking: str) -> None:
    place_of(tracking)
    # The URI is part of the request, which the payload, the log and dry runs show.
    _refuse_secret(tracking)


def _refuse_secret(tracking: str) -> None:
    if USER.match(tracking):
        raise InvalidRequest(
            "tracking has a password in it, or a token, which others would read: "
            "give the address without it, and let the job's image or role provide the "
            "credentials (MLFLOW_TRACKING_TOKEN)"
        )
