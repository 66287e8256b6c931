"""Files of a session, in and out.

Where the target's service takes files of this machine, they go through the connection. Elsewhere that is a tunnel of
less than a megabyte a second: what is larger than that goes through the job's bucket, by addresses that are signed here
for one object and one hour, so that the head needs no right of its own.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raysm.client.service import Service
from raysm.client.session.calls import WAIT_S, Line
from raysm.client.storage.s3 import Storage, Stored, split
from raysm.contract.store import files_below, replacing
from raysm.errors import InvalidRequest

__all__ = ["Files"]

DIRECT_BYTES = 1 << 20
"""Up to which a file goes through a tunnel: about a second and a half."""

# S3 signs for up to 7 days; an hour brings the 5 GB of one put also by a line of 2 MB/s.
SIGNED_S = 3600
CHUNK_BYTES = 1 << 20


class Files:
    """Puts and gets files."""

    def __init__(self, line: Line, service: Service, prefix: str, *, wait_s: float = WAIT_S) -> None:
        """Know the ways.

        Args:
            line: To the session.
            service: Where its job is.
            prefix: In the job's bucket; what lies below it is removed again.
            wait_s: For so long an answer is held back while the head and the bucket are at it.
        """
        self._line, self._service, self._prefix, self._wait_s = line, service, prefix, wait_s

    def put(self, local: Path, remote: str | None) -> str:
        """Send a file, or a folder with all that is in it; return its path on the head.

        Raises:
            InvalidRequest: It is not there.
        """
        name = remote or local.name
        if local.is_dir():
            # Sorted: what cannot be sent is met at the same place each time.
            paths = sorted(files_below(local))
            files = [self._put_file(path, f"{name}/{path.relative_to(local).as_posix()}") for path in paths]
            # The other end makes folders for files alone: an empty one would silently not be there.
            if not files:
                raise InvalidRequest(f"the folder {str(local)!r} holds no file; there is nothing to send")
            return name
        if not local.is_file():
            raise InvalidRequest(f"the file {str(local)!r} is not there")
        return self._put_file(local, name)

    def get(self, remote: str, local: Path) -> Path:
        """Bring a file; return its path here.

        Args:
            remote: On the head; relative to where the session's calls run.
            local: A file, or a folder that gets it under its own name.
        """
        target = local / Path(remote).name if local.is_dir() else local
        # Asked first: it decides the way, and says that there is no such file before anything is written here.
        size = int(self._run("HEAD", remote)["bytes"])
        if size <= DIRECT_BYTES or self._service.target.takes_files:
            self._line.loop.run(self._receive(remote, target))
        else:
            with self._object() as uri:
                self._transfer("GET", remote, to=self._signed("put_object", uri))
                stored = Stored(name=target.name, uri=uri, size=size, version="", modified_s=0.0)
                Storage(self._service).bring(stored, target.parent)
        return target

    def _put_file(self, local: Path, remote: str) -> str:
        if local.stat().st_size <= DIRECT_BYTES or self._service.target.takes_files:
            return str(self._line.loop.run(self._send(local, remote))["path"])
        with self._object() as uri:
            Storage(self._service).upload(local, uri)
            return str(self._transfer("PUT", remote, **{"from": self._signed("get_object", uri)})["path"])

    def _transfer(self, method: str, remote: str, **address: str) -> Any:
        """Have the head transfer a file from or to the bucket, for however long that takes."""
        while True:
            answer = self._run(method, remote, wait=f"{self._wait_s:g}", **address)
            # It goes on, and is known again by its address.
            if answer["bytes"] is not None:
                return answer

    def _run(self, method: str, remote: str, **params: str) -> Any:
        # The name is no part of the URL's path, where .. and // would be normalised away on the way.
        how = {"path": remote, **params}
        if method == "HEAD":
            return self._line.loop.run(self._line.wire.json("GET", "/files/size", params=how))
        return self._line.loop.run(self._line.wire.json(method, "/files", params=how))

    async def _send(self, local: Path, remote: str) -> Any:
        return await self._line.wire.json("PUT", "/files", params={"path": remote}, body=lambda: local.open("rb"))

    async def _receive(self, remote: str, target: Path) -> None:
        # A connection that breaks halfway leaves the old file as it was.
        with replacing(target) as beside, beside.open("wb") as file:
            async with self._line.wire.streamed("GET", "/files", params={"path": remote}) as answer:
                async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                    file.write(chunk)

    @contextmanager
    def _object(self) -> Iterator[str]:
        """Yield an address in the bucket that nobody else has; what was put there is removed."""
        # A prefix for each transfer: two that run at once do not remove each other's object.
        prefix = f"{self._prefix}/{secrets.token_hex(8)}"
        try:
            yield f"{prefix}/file"
        finally:
            Storage(self._service).remove(prefix)

    def _signed(self, operation: str, uri: str) -> str:
        bucket, key = split(uri)
        client = self._service.client("s3")
        parameters = {"Bucket": bucket, "Key": key}
        return str(client.generate_presigned_url(operation, Params=parameters, ExpiresIn=SIGNED_S))
