"""Manifests of inputs, as SageMaker reads them: a prefix and names below it flow in and out as JSON.

``[{"prefix": "s3://bucket/images/"}, "0001.png", "a/0002.png"]`` are the objects whose keys are the prefix with a name
behind it (https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from raysm.errors import InvalidInput

__all__ = ["InputManifest"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InputManifest:
    """Some of the objects below a prefix."""

    prefix: str
    """URI with which all begin."""
    names: Sequence[str]
    """What each has behind it."""

    @classmethod
    def of(cls, content: bytes, uri: str) -> "InputManifest":
        """Return what the file at ``uri`` says.

        Raises:
            InvalidInput: It is no manifest.
        """
        try:
            head, *names = json.loads(content)
            prefix = head["prefix"]
        except (ValueError, TypeError, KeyError):
            prefix, names = None, []
        if not isinstance(prefix, str) or not names or not all(isinstance(name, str) for name in names):
            raise InvalidInput(
                f"{uri} is not a manifest. Write a JSON list with at least one name, "
                '[{"prefix": "s3://bucket/folder/"}, "name", ...], or drop manifest=True if the file is data'
            )
        return cls(prefix=prefix, names=names)

    def content(self) -> bytes:
        """Return the file."""
        return json.dumps([{"prefix": self.prefix}, *self.names]).encode()
