"""Every name of moto's that its documents do not promise, each with its guard, and the few things done by them.

``python -m raysm.local.server.moto_internals`` prints them as a checklist for the installed moto, and exits with 1
when something is missing: the first thing to run with a new moto. A name that is missing, or has another form, is an
error that names it and moto's version; nothing is left out without a word.
"""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from raysm.contract import internals
from raysm.contract.internals import Library, check_all

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

__all__ = [
    "ACCOUNT",
    "INTERNALS",
    "VERSION",
    "Internal",
    "add_bucket",
    "buckets",
    "log_filter",
    "make_application",
    "only_with",
    "read_stored",
    "request_handler",
]

MOTO = Library(
    title="moto",
    distribution="moto",
    user="the embedded SageMaker",
    remedy="install one that raysm[local] names: python3 -m pip install 'raysm[local]'",
)

VERSION = MOTO.version

PARTITION = "aws"
"""Of AWS's own regions; moto keeps those of China and of governments apart."""


class Internal(internals.Internal):
    """One name of moto's code; all of them are needed."""

    __slots__ = ()

    library: ClassVar[Library] = MOTO


def _is_account(value: Any) -> bool:
    return isinstance(value, str) and value.isdigit() and len(value) == 12


def _has_buckets(value: Any) -> bool:
    return isinstance(value[ACCOUNT][PARTITION].buckets, dict) and isinstance(value.bucket_accounts, dict)


def _keeps_versions(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("getlist", "setlist", "__iter__"))


def _has_spool(value: Any) -> bool:
    # Tried on a key of its own: the spool is made with the object, so that the class alone does not show it.
    key = value(name="a", value=b"x", account_id=ACCOUNT, region_name="us-east-1")
    try:
        return hasattr(key, "lock") and all(hasattr(key._value_buffer, name) for name in ("seek", "read"))
    finally:
        # moto warns of a key that is collected before it was disposed of.
        key.dispose()


def _matches(value: Any) -> bool:
    # A filter of another form might be there and match everything, which nobody would notice.
    return bool(value("x").matches("x y")) and not value("x").matches("z")


ACCOUNT_ID = Internal(
    module="moto.core", name="DEFAULT_ACCOUNT_ID", purpose="name the account of every ARN", fits=_is_account
)
APPLICATION = Internal(
    module="moto.moto_server.werkzeug_app", name="DomainDispatcherApplication", purpose="serve S3, STS and the others"
)
BACKEND_APP = Internal(
    module="moto.moto_server.werkzeug_app", name="create_backend_app", purpose="serve S3, STS and the others"
)
HANDLER = Internal(
    module="moto.moto_server.werkzeug_app", name="MotoRequestHandler", purpose="answer paths with encoded slashes"
)
S3_BACKENDS = Internal(
    module="moto.s3.models", name="s3_backends", purpose="keep what lies in S3 until the next start", fits=_has_buckets
)
S3_KEYS = Internal(
    module="moto.s3.utils",
    name="_VersionedKeyStore",
    purpose="leave out of what is kept the payloads of jobs that have ended",
    fits=_keeps_versions,
)
S3_OBJECT = Internal(module="moto.s3.models", name="FakeKey", purpose="read a large object in parts", fits=_has_spool)
LOG_FILTER = Internal(
    module="moto.logs.models", name="EventMessageFilter", purpose="answer FilterLogEvents", fits=_matches
)

# Looked for on import: ARNs in many modules are made with it, and a server without it need not start.
ACCOUNT: str = ACCOUNT_ID.find()
"""The account in which everything is."""

INTERNALS = (ACCOUNT_ID, APPLICATION, BACKEND_APP, HANDLER, S3_BACKENDS, S3_KEYS, S3_OBJECT, LOG_FILTER)
"""All of them: a test each says that the installed moto has it."""


def make_application() -> "WSGIApplication":
    """Return one WSGI application for all of moto's services; each is imported when it is first used.

    It raises NotImplementedError for services and operations that moto does not have.
    """
    make_backend_app = BACKEND_APP.find()

    def make_app(service: str | None) -> Any:
        if service is None:
            raise NotImplementedError("moto has no such service")
        return make_backend_app(service)

    application: WSGIApplication = APPLICATION.find()(make_app)
    return application


def request_handler() -> Any:
    """Return the class of werkzeug's request handlers that moto's paths need."""
    return HANDLER.find()


def buckets() -> dict[str, Any]:
    """Return the buckets of S3 by name, as moto holds them: they can be pickled."""
    by_name: dict[str, Any] = _s3_backends()[ACCOUNT][PARTITION].buckets
    return by_name


def add_bucket(name: str, bucket: Any) -> None:
    """Let S3 have a bucket that was pickled by this version of moto."""
    buckets()[name] = bucket
    # Where moto looks for who has a name: without it, another bucket of this name could be made over this one.
    _s3_backends().bucket_accounts[name] = (PARTITION, ACCOUNT)


@contextlib.contextmanager
def only_with(bucket: Any, prefixes: tuple[str, ...]) -> Iterator[None]:
    """Let a bucket hold, in the block, no more than the objects whose keys begin so."""
    keys = bucket.keys
    # Another store, not removals from this one: moto's pop disposes of the content of what it removes.
    bucket.keys = _key_store()()
    for name in keys:
        if name.startswith(prefixes):
            # The whole list: a key has all its versions in it, and setting one would lose the others.
            bucket.keys.setlist(name, keys.getlist(name))
    try:
        yield
    finally:
        bucket.keys = keys


def read_stored(bucket: str, key: str, size: int, chunk: int) -> Iterator[bytes]:
    """Yield the content of an object from moto's own spool, in parts.

    moto's answers to GET, and to each range of it, hold the whole object in memory.
    """
    _check_spool()
    stored = _s3_backends()[ACCOUNT][PARTITION].get_object(bucket, key)
    for start in range(0, size, chunk):
        # Two steps on one file, which moto's own answers to other requests seek too.
        with stored.lock:
            stored._value_buffer.seek(start)
            part = stored._value_buffer.read(chunk)
        yield part


def log_filter(pattern: str) -> Callable[[str], bool]:
    """Return what says whether a line matches a filter pattern of CloudWatch Logs."""
    matches: Callable[[str], bool] = LOG_FILTER.find()(pattern).matches
    return matches


@functools.cache
def _s3_backends() -> Any:
    return S3_BACKENDS.find()


@functools.cache
def _key_store() -> Any:
    return S3_KEYS.find()


@functools.cache
def _check_spool() -> None:
    S3_OBJECT.find()


def main() -> int:
    """Print what the installed moto has and lacks; return how many are lacking, at most 1."""
    return check_all(MOTO, INTERNALS)


if __name__ == "__main__":
    sys.exit(main())
