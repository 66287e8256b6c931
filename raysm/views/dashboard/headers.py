"""The headers of a request and of its answer, as they pass the proxy. Pure: headers flow in and out.

Ray takes its token from a cookie too, and cookies know no ports: of two clusters on one machine, each would overwrite
the other's. So none passes, in neither direction. What tells Ray that a browser asks, passes: by that Ray refuses all
that changes anything, whichever page asks for it.
"""

from collections.abc import Iterable, Mapping

__all__ = ["ADDED", "POLICY", "downstream_headers", "upstream_headers"]

HOP_BY_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1"""

CREDENTIALS = frozenset(("authorization", "cookie", "x-ray-authorization"))
"""By which Ray knows who asks, in its order of preference."""

NOT_UP = HOP_BY_HOP | CREDENTIALS | {"host", "referer", "x-proxycontextpath"}

NOT_DOWN = HOP_BY_HOP | {"set-cookie", "content-length", "location", "server", "date", "www-authenticate"}

POLICY = "default-src 'self' 'unsafe-inline' data: blob:; object-src 'none'; base-uri 'none'"
"""Nothing of the page may come from elsewhere, or tell anybody elsewhere its path."""

ADDED: Mapping[str, str] = {
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""What every answer of the proxy has beside its policy."""


def upstream_headers(headers: Iterable[tuple[str, str]], *, token: str, address: str) -> list[tuple[str, str]]:
    """Return the headers that the head is sent.

    Args:
        headers: The browser's.
        token: The job's.
        address: Of the head's dashboard, ``127.0.0.1:PORT``.
    """
    pairs = list(headers)
    passed = [
        (name, value)
        for name, value in pairs
        if name.lower() not in NOT_UP and not name.lower().startswith("x-forwarded-")
    ]
    # Not the browser's own, which has the secret path: Ray writes it into its access log.
    if any(name.lower() == "referer" for name, _ in pairs):
        passed.append(("Referer", f"http://{address}/"))
    return [*passed, ("Authorization", f"Bearer {token}")]


def downstream_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the headers of the head's answer that the browser gets."""
    return [(name, value) for name, value in headers if name.lower() not in NOT_DOWN]
