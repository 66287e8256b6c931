"""moto's services (S3, CloudWatch, STS, IAM and others) as one WSGI application.

The server itself has boto3 clients for them. The clients need no socket: botocore calls the
application in the caller's thread. The functions after ``MotoServices`` use parts of moto that are
not its public interface; ``tests/local/server/test_app.py`` uses each of them.

moto's S3 is in memory. A server writes each bucket to a file when it ends, and reads the files when
it starts. A server that is killed leaves the files of the previous end. Of raysm's own bucket, only
the payloads that a follow-up job needs are kept.
"""

import contextlib
import functools
import io
import json
import logging
import pickle
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit
from xml.sax.saxutils import escape

from moto.core import DEFAULT_ACCOUNT_ID
from werkzeug.test import EnvironBuilder, run_wsgi_app

from raysm.core.protocol.botocore_session import settingless_session
from raysm.core.protocol.names import LOCAL_BUCKET, MAX_RESTARTS_TAG, RESTART_TAG
from raysm.core.protocol.store import replacing
from raysm.local.server.records import JobRecord

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

VERSION = version("moto")
ACCOUNT: str = DEFAULT_ACCOUNT_ID
PARTITION = "aws"
LARGE = 64 << 20
CHUNK = 1 << 20

NAMESPACE = "https://iam.amazonaws.com/doc/2010-05-08/"
ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role(/.*)?/([\w+=,.@-]{1,64})")
TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "sagemaker.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


class _Raw(io.BytesIO):
    def stream(self, amt: int = CHUNK, decode_content: bool | None = None) -> Iterator[bytes]:
        while chunk := self.read(amt):
            yield chunk


class MotoServices:
    def __init__(self) -> None:
        self.application: WSGIApplication = make_application()
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    def client(self, service: str, region: str = "us-east-1") -> Any:
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self._make(service, region)
            return self._clients[service, region]

    def _make(self, service: str, region: str) -> Any:
        from boto3.session import Session
        from botocore.config import Config

        # moto checks no keys, but botocore would look for the user's own.
        keys = {"aws_access_key_id": "raysm", "aws_secret_access_key": "raysm"}
        session = Session(region_name=region, botocore_session=settingless_session(), **keys)
        config = Config(
            # There is no network: a call that failed would fail again, and no body can be damaged.
            retries={"total_max_attempts": 1},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
        )
        client = session.client(service, endpoint_url="http://127.0.0.1", config=config)
        client.meta.events.register("before-send", functools.partial(_send, self.application))
        return client

    def open_object(self, bucket: str, key: str, size: int) -> Iterator[bytes]:
        """Yield the content of an object in parts; a large one is never in memory as a whole."""
        if size <= LARGE:
            yield self.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
            return
        yield from read_stored(bucket, key, size, CHUNK)


def _send(application: "WSGIApplication", request: Any, **_: Any) -> Any:
    from botocore.awsrequest import AWSResponse

    body = request.body
    if not hasattr(body, "read"):
        body = io.BytesIO(body.encode() if isinstance(body, str) else body or b"")
    answer, status, headers = run_wsgi_app(application, _environ(request, body), buffered=True)
    return AWSResponse(request.url, int(status.split()[0]), dict(headers), _Raw(b"".join(answer)))


def _environ(request: Any, body: Any) -> dict[str, Any]:
    parts = urlsplit(request.url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    values = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    builder = EnvironBuilder(
        base_url="http://127.0.0.1",
        query_string=parts.query,
        method=request.method,
        headers=values,
        input_stream=body,
        # moto reads the path in RAW_URI, because a decoded slash in a key would be one of the path.
        environ_overrides={
            "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
            "REQUEST_URI": target,
            "RAW_URI": target,
            "REMOTE_ADDR": "127.0.0.1",
        },
    )
    return dict(builder.get_environ())


def simulate_policy(form: bytes, moto: MotoServices) -> bytes | None:
    """Answer IAM's SimulatePrincipalPolicy, which moto does not.

    Everything is allowed. Return None for other requests. The role is made too, because a client
    asks next which principals the role trusts.
    """
    fields = parse_qs(form.decode(errors="replace"))
    if fields.get("Action") != ["SimulatePrincipalPolicy"]:
        return None
    role = ROLE.fullmatch(fields.get("PolicySourceArn", [""])[0])
    if role:
        client = moto.client("iam")
        with contextlib.suppress(client.exceptions.EntityAlreadyExistsException):
            client.create_role(
                RoleName=role[2],
                Path=f"{role[1] or ''}/",
                AssumeRolePolicyDocument=json.dumps(TRUST),
            )
    actions = [
        values[0] for name, values in fields.items() if name.startswith("ActionNames.member.")
    ]
    # Without ResourceArns, AWS simulates for all.
    resources = [
        values[0] for name, values in fields.items() if name.startswith("ResourceArns.member.")
    ] or ["*"]
    members = "".join(
        f"<member><EvalActionName>{escape(action)}</EvalActionName>"
        f"<EvalResourceName>{escape(resource)}</EvalResourceName>"
        "<EvalDecision>allowed</EvalDecision></member>"
        for action in actions
        for resource in resources
    )
    return (
        f'<SimulatePrincipalPolicyResponse xmlns="{NAMESPACE}"><SimulatePrincipalPolicyResult>'
        f"<IsTruncated>false</IsTruncated><EvaluationResults>{members}</EvaluationResults>"
        f"</SimulatePrincipalPolicyResult><ResponseMetadata><RequestId>{uuid.uuid4()}</RequestId>"
        "</ResponseMetadata></SimulatePrincipalPolicyResponse>"
    ).encode()


def make_application() -> "WSGIApplication":
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    def make_app(service: str | None) -> Any:
        if service is None:
            raise NotImplementedError("moto has no such service")
        return create_backend_app(service)

    application: WSGIApplication = DomainDispatcherApplication(make_app)
    return application


def buckets() -> dict[str, Any]:
    by_name: dict[str, Any] = _s3_backends()[ACCOUNT][PARTITION].buckets
    return by_name


def add_bucket(name: str, bucket: Any) -> None:
    buckets()[name] = bucket
    # moto looks here for the owner of a name; without it another bucket of this name could replace
    # this one.
    _s3_backends().bucket_accounts[name] = (PARTITION, ACCOUNT)


def read_stored(bucket: str, key: str, size: int, chunk: int) -> Iterator[bytes]:
    """Yield the content of an object in parts, from moto's spool.

    moto's answers to GET hold the object in memory.
    """
    stored = _s3_backends()[ACCOUNT][PARTITION].get_object(bucket, key)
    for start in range(0, size, chunk):
        # moto's own answers seek in the same file.
        with stored.lock:
            stored._value_buffer.seek(start)
            part = stored._value_buffer.read(chunk)
        yield part


def log_filter(pattern: str) -> Callable[[str], bool]:
    from moto.logs.models import EventMessageFilter

    matches: Callable[[str], bool] = EventMessageFilter(pattern).matches
    return matches


def _s3_backends() -> Any:
    from moto.s3.models import s3_backends

    return s3_backends


UNREADABLE = "unreadable"
LOG = logging.getLogger(__name__)


def _folder(home: Path) -> Path:
    # By version: moto's classes may change.
    return home / "s3" / VERSION


def _restarts_left(record: JobRecord) -> int:
    # A user may write anything into tags.
    with contextlib.suppress(ValueError):
        return int(record.tags.get(MAX_RESTARTS_TAG, "0")) - int(record.tags.get(RESTART_TAG, "0"))
    return 0


def _prefixes_to_keep(records: Iterable[JobRecord]) -> tuple[str, ...]:
    prefixes: set[str] = set()
    for record in records:
        if record.secondary == "MaxRuntimeExceeded" and _restarts_left(record) > 0:
            for channel in record.request.get("InputDataConfig") or []:
                uri = str((channel["DataSource"].get("S3DataSource") or {}).get("S3Uri"))
                bucket, _, key = uri.removeprefix("s3://").partition("/")
                if _is_own(bucket):
                    prefixes.add(key)
    return tuple(prefixes)


def _is_own(bucket: str) -> bool:
    return bucket == LOCAL_BUCKET or bucket.startswith(f"{LOCAL_BUCKET}-")


def save_buckets(home: Path, records: Iterable[JobRecord]) -> None:
    """Write every bucket of the server of ``home``, which ends.

    Objects that are not kept are removed.
    """
    prefixes = _prefixes_to_keep(records)
    present = buckets()
    folder = _folder(home)
    if folder.is_dir():
        for path in folder.iterdir():
            if path.name not in present:
                # The bucket was deleted.
                path.unlink()
    for name, bucket in present.items():
        if _is_own(name):
            for key in [key for key in bucket.keys if not key.startswith(prefixes)]:
                bucket.keys.pop(key)
        with (
            replacing(folder / name, mode=0o600, within=folder.parent) as beside,
            beside.open("wb") as file,
        ):
            pickle.dump(bucket, file, protocol=5)


def restore_buckets(home: Path) -> None:
    """Read the buckets of the previous server.

    A file that cannot be read is logged and moved away.
    """
    folder = _folder(home)
    for other in folder.parent.iterdir() if folder.parent.is_dir() else ():
        if other.name not in (folder.name, UNREADABLE) and other.is_dir() and any(other.iterdir()):
            LOG.warning(
                "%s holds buckets that moto %s wrote, which moto %s does not read",
                other,
                other.name,
                folder.name,
            )
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            with path.open("rb") as file:
                bucket = pickle.load(file)  # a file of this home
        except Exception as error:  # unpickling runs the code of moto's classes
            unreadable = folder.with_name(UNREADABLE)
            unreadable.mkdir(exist_ok=True)
            aside = path.rename(unreadable / f"{path.name}-{time.time_ns()}")
            LOG.warning(
                "the bucket %s could not be read (%r); its file is %s now", path.name, error, aside
            )
            continue
        add_bucket(path.name, bucket)
