"""Paths of this machine as ``file:///`` URIs, and back.

Names of files are never joined to a URI: ``?``, ``#``, ``%`` and ``..`` mean something there, and a
name may be bytes that are not UTF-8. Join paths, and turn the joined path into a URI.
"""

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes

SCHEME = "file://"


def uri_of(path: Path) -> str:
    return path.absolute().as_uri()


def path_of(uri: str) -> Path:
    """Return the path of a ``file:///`` URI.

    All after the host is the path, and ``%`` and two digits are a byte of it.

    Users write such URIs too, without quoting what Python would quote.
    """
    path = uri.removeprefix(SCHEME).removeprefix("localhost")
    return Path(os.fsdecode(unquote_to_bytes(os.fsencode(path))))
