"""What opens an address, and who may not read it: text with addresses in it flows in, text for people flows out.

Standard library alone: a client and an instance that has installed nothing yet both name requirements.
"""

import re

__all__ = ["without_credentials"]

BEFORE_HOST = re.compile(r"(://)[^/\s]*@")
"""A token, or a user with a password; to the last @, since one may stand in a password too."""


def without_credentials(text: str) -> str:
    """Return a text with stars in place of what stands before the host of each of its addresses."""
    return BEFORE_HOST.sub(r"\1***@", text)
