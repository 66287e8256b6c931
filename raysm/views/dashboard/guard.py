"""Who may ask the proxy anything: whoever knows its secret path, by its own name, and from its own page.

Pure: what flows in are a request's path and headers, what flows out is a refusal, or none. The path is what keeps other
users of the machine out; the names keep out a page of somebody else's that the browser happens to show.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

__all__ = ["Guard", "Refusal", "new_prefix"]

PREFIX_BYTES = 24
"""192 bits: nobody guesses them, and nobody reads them aloud."""

LOOPBACK_NAMES = ("127.0.0.1", "localhost")

FORWARDED = "X-Forwarded-Context"
"""jupyter-server-proxy tells by it below which path it serves the page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    """Of HTTP."""
    reason: str
    """For people."""


def new_prefix() -> str:
    """Return a path that nobody can guess."""
    return secrets.token_urlsafe(PREFIX_BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Guard:
    """The rules of one proxy."""

    prefix: str
    """The first part of every path."""
    port: int
    """Where it listens."""

    def below(self, path: str) -> str | None:
        """Return what of ``path`` follows the prefix, without a slash at its begin; None where it is another's."""
        first, _, rest = path.lstrip("/").partition("/")
        # In constant time: another user of the machine could measure how many characters were right.
        return rest if hmac.compare_digest(first.encode(), self.prefix.encode()) else None

    def refusal(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request with these headers is refused; None where it is not."""
        host = headers.get("Host", "")
        if not self._is_own(host, headers):
            return Refusal(status=421, reason="this proxy answers to 127.0.0.1 and localhost alone")
        origin = headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return Refusal(status=403, reason="the request comes from another page")
        # An image or a script of another page has no Origin; a link that somebody follows is a navigation.
        if headers.get("Sec-Fetch-Site") == "cross-site" and headers.get("Sec-Fetch-Mode") != "navigate":
            return Refusal(status=403, reason="the request comes from another page")
        return None

    def _is_own(self, host: str, headers: Mapping[str, str]) -> bool:
        name, _, port = host.lower().rpartition(":")
        if name in LOOPBACK_NAMES and port == str(self.port):
            return True
        # A browser that asks this port itself names it, whatever name somebody has made lead here (DNS rebinding). A
        # Jupyter server passes on its own name, and says so by a header.
        return port != str(self.port) and FORWARDED in headers
