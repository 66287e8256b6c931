"""The secret of a grid that AWS Batch runs, and the seals that it makes.

People who may write to the bucket must not be able to change what a grid sends. So the secret is
not there: it is an encrypted parameter of AWS Systems Manager, which the user's machine writes, and
the Batch jobs read with their role. Jobs' tokens are derived from the same secret.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from pathlib import Path

from raysm.core.client.service import Service
from raysm.core.protocol.store import put
from raysm.errors import InvalidPayload, ServiceError
from raysm.features.grid.template import SECRET_BYTES, secret_path

NAMES = "/raysm/grids/"
"""Where the parameters are; the user's policy allows them by this prefix."""

LABEL = "raysm grid"
"""Begins what a seal covers, so that no seal of another kind fits."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """The parameter with a grid's secret. Every call may raise ``ServiceError``."""

    service: Service
    name: str

    @staticmethod
    def of(service: Service, place: str) -> "Parameter":
        """Return the parameter of the grid whose folder in S3 is ``place``."""
        return Parameter(service, NAMES + place.rstrip("/").rpartition("/")[2])

    def read(self) -> str | None:
        try:
            answer = self.service.call("ssm", "get_parameter", Name=self.name, WithDecryption=True)
        except ServiceError as error:
            if error.code == "ParameterNotFound":
                return None
            raise
        return str(answer["Parameter"]["Value"])

    def write(self, secret: str) -> str:
        """Write the secret unless there is one; return the one that is there."""
        try:
            self.service.call(
                "ssm", "put_parameter", Name=self.name, Value=secret, Type="SecureString"
            )
        except ServiceError as error:
            if error.code != "ParameterAlreadyExists":
                raise
            # Another process was faster, or the answer to an earlier call was lost.
            return self.read() or secret
        return secret

    def remove(self) -> None:
        try:
            self.service.call("ssm", "delete_parameter", Name=self.name)
        except ServiceError as error:
            if error.code != "ParameterNotFound":
                raise


def agree_on_secret(store: Path, parameter: Parameter) -> str:
    """Return the secret of a grid, the same on all machines; create it if there is none.

    With another secret, a repeated Create would make another job, and a state would look changed.
    """
    path = secret_path(store)
    secret = parameter.read()
    if secret is None:
        own = path.read_text(encoding="utf-8") if path.exists() else secrets.token_hex(SECRET_BYTES)
        secret = parameter.write(own)
    put(path, secret, mode=0o600)
    return secret


@dataclass(frozen=True, slots=True)
class Seal:
    """Makes and checks seals (HMAC, SHA-256) of objects in a grid's folder."""

    secret: str
    place: str
    """The grid's folder, so that an object of one grid does not fit another."""

    def of(self, name: str, content: bytes) -> bytes:
        """Return the seal of an object with this name and content."""
        code = hmac.new(
            self.secret.encode(), f"{LABEL}\n{self.place}\n{name}\n".encode(), hashlib.sha256
        )
        code.update(content)
        return code.hexdigest().encode()

    def fits(self, seal: bytes, name: str, content: bytes) -> bool:
        return hmac.compare_digest(seal, self.of(name, content))

    def sealed(self, name: str, content: bytes) -> bytes:
        """Return the content after its seal, as it is stored."""
        return self.of(name, content) + b"\n" + content

    def opened(self, name: str, stored: bytes) -> bytes:
        """Return the content of a stored object.

        Raises:
            InvalidPayload: It has another seal: someone else wrote it, or a raysm before seals.
        """
        seal, _, content = stored.partition(b"\n")
        if self.fits(seal, name, content):
            return content
        raise InvalidPayload(
            f"{self.place}/{name} is not sealed with the grid's secret: "
            "it was changed by someone who may write to the bucket, "
            "or it is of an earlier version of raysm; nothing of it is used",
            remedy="continue with the raysm that handed the grid over; "
            f"or remove it (aws s3 rm {self.place}/{name}), "
            "and the next raysm grid run goes on from this machine's file: "
            "it takes jobs that were sent meanwhile for its own by their names, or stops them",
        )
