"""Finished blocks on the head's disk, so that a restarted job goes on where it stopped.

A folder holds one file for each finished block. A kill may tear a file, and checkpoints go to S3
and come back, so a file is used only if its first line has this record's key, the digest of the
block's name and the digest of the content. Any other file is removed, and its block is computed
again. Therefore a file needs no temporary name while it is
written: SageMaker would copy that file too, and bring it back with every restart of an instance
that died meanwhile.

Whoever may write to the checkpoints in S3 can write such a file, digests included. So a value is
never a pickle: its encoding is plain data (arrays, JSON, Arrow), which runs no code when it is
read.
"""

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from raysm.core.protocol.store import removed_if_torn
from raysm.errors import InvalidInput
from raysm.instance.work.disk import full_disk_is_no_room, map_file, settle

V = TypeVar("V")

Buffers: TypeAlias = Sequence[bytes | memoryview]

MAX_LINE_BYTES = 4096
MAPPED_BYTES = 1 << 20
"""Smaller files are read, because a mapping holds a file descriptor while any view of it lives."""


def occupied_bytes(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


class BlockRecord(Generic[V]):
    def __init__(
        self,
        folder: Path,
        depends_on: Mapping[str, Any],
        *,
        encode: Callable[[V], Buffers],
        decode: Callable[[memoryview], V],
        format: str = "",
        for_later: bool = False,
    ) -> None:
        """Open the record in ``folder``; remove the records of other requests there.

        Args:
            folder: A folder for this record alone.
            depends_on: Everything that the values depend on, as JSON: digests of the input,
                parameters, versions, the block size. Another request never reuses them.
            encode: Turns a value into bytes.
            decode: Turns bytes back into a value, without running code from them. It gets a file's
                content, mapped if it is large; it may return views.
            format: Name of the encoding, if it has changed: files of another one are removed, and
                ``outdated`` counts them.
            for_later: Only a later run reads what this one saves, so files are dropped from the
                page cache.
        """
        text = json.dumps(depends_on, sort_keys=True, separators=(",", ":"))
        self.key = hashlib.sha256(text.encode()).hexdigest()
        self.folder = folder / self.key[:32]
        self.depends_on = depends_on
        self._encode = encode
        self._decode = decode
        self._for_later = for_later
        self._format = format
        self._verified: set[str] = set()
        self.outdated = 0
        self.dropped = 0
        """Values of runs that depended on something else; they were removed."""
        if folder.exists():
            for other in folder.iterdir():
                if other.name != self.folder.name and other.is_dir():
                    self.dropped += sum(1 for _ in other.iterdir())
                    shutil.rmtree(other, ignore_errors=True)

    def path(self, block: object) -> Path:
        return self.folder / hashlib.sha256(str(block).encode()).hexdigest()[:32]

    def __contains__(self, block: object) -> bool:
        path = self.path(block)
        if path.name in self._verified:
            return True
        if not path.exists():
            return False
        # The file is torn, or of another block. Computing it again costs one block; using it would
        # spoil the result.
        if not self._is_complete(path, block):
            path.unlink(missing_ok=True)
            return False
        self._verified.add(path.name)
        return True

    def save(self, block: object, value: V) -> None:
        buffers = self._encode(value)
        digest = hashlib.sha256()
        for buffer in buffers:
            digest.update(buffer)
        path = self.path(block)
        self.folder.mkdir(parents=True, exist_ok=True)
        # Write a new file, because the old one may be mapped.
        path.unlink(missing_ok=True)
        with (
            full_disk_is_no_room(path, f"{block} was recorded"),
            removed_if_torn(path),
            path.open("xb") as file,
        ):
            file.write(self._line(block, digest.hexdigest(), self._format))
            for buffer in buffers:
                file.write(buffer)
            if self._for_later:
                file.flush()
                settle(file.fileno(), 0, file.tell())
        self._verified.add(path.name)

    def load(self, block: object, mapped_bytes: int = MAPPED_BYTES) -> V:
        """Return a recorded value; files of ``mapped_bytes`` or more are mapped, with 0 all files.

        Raises:
            KeyError: The record does not have it.
            InvalidInput: Its content is not what ``save`` writes, although its digest is right.
        """
        if block not in self:
            raise KeyError(str(block))
        with self.path(block).open("rb") as file:
            offset = len(file.readline(MAX_LINE_BYTES))
            # A mapping costs more than reading a small file, and there are thousands of them.
            is_small = os.fstat(file.fileno()).st_size < mapped_bytes
            content: bytes | mmap.mmap | None = None if is_small else map_file(file.fileno())
            if content is None:
                file.seek(0)
                content = file.read()
        try:
            return self._decode(memoryview(content)[offset:])
        except (ValueError, TypeError, LookupError, StopIteration, struct.error, OSError) as error:
            raise InvalidInput(
                f"the checkpoint of {block}, {self.path(block)}, was not written by raysm: "
                f"{error!r}; remove the job's checkpoints, and see who may write to them"
            ) from error

    def remove(self) -> None:
        # The result has its values, so files that cannot be removed do not matter.
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()

    def _line(self, block: object, digest: str, format: str) -> bytes:
        # The digest of the block's name, because the line must have one length for names of any
        # length.
        named = hashlib.sha256(str(block).encode()).hexdigest()
        fields = {"raysm_block": 1, "key": self.key, "block": named, "sha256": digest}
        if format:
            fields["format"] = format
        line = json.dumps(fields).encode() + b"\n"
        # Padded to a multiple of 64 bytes, so that arrays that follow are aligned.
        return line[:-1].ljust(-len(line) % 64 + len(line) - 1) + b"\n"

    def _is_complete(self, path: Path, block: object) -> bool:
        try:
            with path.open("rb") as file:
                first = file.readline(MAX_LINE_BYTES)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return False
        # Versions of raysm before formats had names wrote pickles.
        if self._format and first == self._line(block, digest, ""):
            self.outdated += 1
        return first == self._line(block, digest, self._format)
