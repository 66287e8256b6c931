"""The parts of moto that are not its public interface, in one place.

They are imported on first use, because moto is slow to import. ``tests/local/server/test_moto_internals.py`` uses each
of them: run it first with another version of moto.
"""

import contextlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from moto.core import DEFAULT_ACCOUNT_ID

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = [
    "ACCOUNT",
    "VERSION",
    "add_bucket",
    "buckets",
    "log_filter",
    "make_application",
    "only_with",
    "read_stored",
    "request_handler",
]

VERSION = version("moto")
ACCOUNT: str = DEFAULT_ACCOUNT_ID
"""The account that owns everything."""
PARTITION = "aws"


def make_application() -> "WSGIApplication":
    """Return one WSGI application for all of moto's services.

    It raises NotImplementedError for services and operations that moto does not have.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    def make_app(service: str | None) -> Any:
        if service is None:
            raise NotImplementedError("moto has no such service")
        return create_backend_app(service)

    application: WSGIApplication = DomainDispatcherApplication(make_app)
    return application


def request_handler() -> Any:
    """Return the class of werkzeug's request handlers that answers paths with encoded slashes."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler

    return MotoRequestHandler


def buckets() -> dict[str, Any]:
    """Return the buckets of S3 by name, as moto holds them: they can be pickled."""
    by_name: dict[str, Any] = _s3_backends()[ACCOUNT][PARTITION].buckets
    return by_name


def add_bucket(name: str, bucket: Any) -> None:
    """Add a bucket that was pickled by this version of moto."""
    buckets()[name] = bucket
    # moto looks here for the owner of a name; without it another bucket of this name could replace this one.
    _s3_backends().bucket_accounts[name] = (PARTITION, ACCOUNT)


@contextlib.contextmanager
def only_with(bucket: Any, prefixes: tuple[str, ...]) -> Iterator[None]:
    """Reduce a bucket, in the block, to the objects whose keys start with one of the prefixes."""
    from moto.s3.utils import _VersionedKeyStore

    keys = bucket.keys
    # Another store: removing from this one would dispose of the content.
    bucket.keys = _VersionedKeyStore()
    for name in keys:
        if name.startswith(prefixes):
            # All versions: setting one key would lose the others.
            bucket.keys.setlist(name, keys.getlist(name))
    try:
        yield
    finally:
        bucket.keys = keys


def read_stored(bucket: str, key: str, size: int, chunk: int) -> Iterator[bytes]:
    """Yield the content of an object in parts, from moto's spool: its answers to GET hold the object in memory."""
    stored = _s3_backends()[ACCOUNT][PARTITION].get_object(bucket, key)
    for start in range(0, size, chunk):
        # moto's own answers seek in the same file.
        with stored.lock:
            stored._value_buffer.seek(start)
            part = stored._value_buffer.read(chunk)
        yield part


def log_filter(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches a line against a filter pattern of CloudWatch Logs."""
    from moto.logs.models import EventMessageFilter

    matches: Callable[[str], bool] = EventMessageFilter(pattern).matches
    return matches


def _s3_backends() -> Any:
    from moto.s3.models import s3_backends

    return s3_backends
