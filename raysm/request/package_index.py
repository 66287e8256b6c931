"""Where instances get packages from: the address of an index, or the ARN of a CodeArtifact repository.

What flows in is the text that a user gave, what flows out is the same, checked, or a ``CodeArtifact``. The address
travels in the request, which whoever may read the bucket can read: it holds no secret. A repository of CodeArtifact
needs none, because the job's role gets a token inside of the instance.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from raysm.errors import InvalidRequest

__all__ = ["CodeArtifact", "check_index"]

# https://docs.aws.amazon.com/service-authorization/latest/reference/list_awscodeartifact.html
ARN = re.compile(r"arn:aws[\w-]*:codeartifact:([a-z0-9-]+):(\d{12}):repository/([a-z0-9-]+)/([A-Za-z0-9._-]+)")


@dataclass(frozen=True, slots=True)
class CodeArtifact:
    """A repository of AWS CodeArtifact."""

    arn: str
    """``arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/NAME``."""
    region: str
    """Where it is."""
    account: str
    """Number of the account that owns the domain."""
    domain: str
    """Of the repository."""
    name: str
    """Of the repository."""

    @classmethod
    def of(cls, index: str) -> "CodeArtifact | None":
        """Return the repository that an index is; None where it is an address."""
        match = ARN.fullmatch(index)
        return cls(index, *match.groups()) if match else None


def check_index(index: str) -> None:
    """Check what a user gave as ``pip_index``.

    Raises:
        InvalidRequest: It is neither an address nor an ARN, or it holds a secret.
    """
    if CodeArtifact.of(index):
        return
    try:
        parts = urlsplit(index)
    except ValueError as error:
        # Not shown, as nobody knows where in it a password would stand.
        raise InvalidRequest(f"pip_index is not an address: {error}; write https://pip.example/simple") from None
    # Before all else: the other message shows the address, and a password with it.
    if parts.username or parts.password:
        raise InvalidRequest(
            "pip_index holds a user or a password, and everybody who may read the job's payload would read it; give a "
            "CodeArtifact repository by its ARN, for which the job's role gets a token, or an index of your network"
        )
    # Blanks are looked for in the text itself: urlsplit drops line breaks and tabs without a word.
    if parts.scheme not in ("https", "http") or not parts.hostname or any(letter.isspace() for letter in index):
        raise InvalidRequest(
            f"pip_index must be the https:// address of an index, as in https://pip.example/simple, or the ARN of a "
            f"CodeArtifact repository, arn:aws:codeartifact:REGION:ACCOUNT:repository/DOMAIN/NAME; got {index!r}"
        )
