"""Send files to a session, and fetch them.

On the embedded SageMaker files go through the connection. On AWS the connection is a tunnel of less
than a megabyte per second, so larger files go through the job's bucket. The client presigns the URL
of one object for one hour, so the head needs no permissions.
"""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage, Stored, split
from raysm.core.protocol.store import files_below, replacing
from raysm.errors import InvalidRequest, ServiceError
from raysm.features.session.client.calls import Call, CallContext
from raysm.features.session.client.wire import require_aiohttp
from raysm.features.session.protocol import TRANSFER, CallRequest

DIRECT_BYTES = 1 << 20
"""The largest file that goes through a tunnel, which takes about a second and a half."""

# S3 allows up to 7 days. In an hour the 5 GB of one put fit through 2 MB/s.
SIGNED_S = 3600
CHUNK_BYTES = 1 << 20


class Files:
    def __init__(
        self, context: CallContext, service: Service, prefix: str, call: Callable[..., Call[Any]]
    ) -> None:
        # call() sends a call, as SessionConnection.send_call does.
        self._context = context
        self._service = service
        self._prefix = prefix
        self._call = call

    def put(self, local: Path, remote: str | None) -> str:
        name = remote or local.name
        if local.is_dir():
            # Sorted, so that a failure happens at the same file each time.
            paths = sorted(files_below(local))
            files = [
                self._put_file(path, f"{name}/{path.relative_to(local).as_posix()}")
                for path in paths
            ]
            # The head creates folders only for files, so an empty folder would silently be missing.
            if not files:
                raise InvalidRequest(
                    f"the folder {str(local)!r} holds no file; there is nothing to send"
                )
            return name
        if not local.is_file():
            raise InvalidRequest(f"the file {str(local)!r} does not exist")
        return self._put_file(local, name)

    def get(self, remote: str, local: Path) -> Path:
        target = local / Path(remote).name if local.is_dir() else local
        # The size decides the route. The request fails if the file does not exist, before anything
        # is written here.
        size = self._context.loop.run(
            self._context.wire.json("GET", "/files/size", params={"path": remote})
        )["bytes"]
        if size <= DIRECT_BYTES or self._service.target.takes_files:
            self._context.loop.run(self._receive(remote, target))
        else:
            with self._create_object() as uri:
                self._transfer(remote, to=self._sign_url("put_object", uri))
                stored = Stored(name=target.name, uri=uri, size=size, version="", modified_s=0.0)
                Storage(self._service).bring(stored, target.parent)
        return target

    def _put_file(self, local: Path, remote: str) -> str:
        if local.stat().st_size <= DIRECT_BYTES or self._service.target.takes_files:
            return str(self._context.loop.run(self._send(local, remote))["path"])
        with self._create_object() as uri:
            Storage(self._service).upload(local, uri)
            return str(
                self._transfer(remote, **{"from": self._sign_url("get_object", uri)})["path"]
            )

    def _transfer(self, remote: str, **address: str) -> Any:
        request = CallRequest(kind=TRANSFER, name=f"the transfer of {remote}")
        return self._call(request, [json.dumps({"path": remote, **address}).encode()]).result()

    async def _send(self, local: Path, remote: str) -> Any:
        return await self._context.wire.json(
            "PUT", "/files", params={"path": remote}, body=lambda: local.open("rb")
        )

    async def _receive(self, remote: str, target: Path) -> None:
        # A broken transfer leaves the old file unchanged.
        with replacing(target) as temporary, temporary.open("wb") as file:
            try:
                async with self._context.wire.stream(
                    "GET", "/files", params={"path": remote}
                ) as answer:
                    async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                        file.write(chunk)
            except require_aiohttp().ClientError as error:
                raise ServiceError(
                    f"the connection broke after {file.tell():,} bytes of the file {remote!r}: "
                    f"{error}; nothing was written to {str(target)!r}",
                    is_transient=True,
                    remedy="fetch it again",
                ) from error

    @contextmanager
    def _create_object(self) -> Iterator[str]:
        # One prefix for each transfer, because remove() removes everything below the prefix.
        prefix = f"{self._prefix}/{secrets.token_hex(8)}"
        try:
            yield f"{prefix}/file"
        finally:
            Storage(self._service).remove(prefix)

    def _sign_url(self, operation: str, uri: str) -> str:
        bucket, key = split(uri)
        client = self._service.client("s3")
        parameters = {"Bucket": bucket, "Key": key}
        return str(client.generate_presigned_url(operation, Params=parameters, ExpiresIn=SIGNED_S))
