"""Finished blocks on the head's disk, so that a restarted job goes on where it stopped.

A folder holds one file for each finished block. It may be torn by a kill, and may have travelled since (checkpoints go
to S3 and come back), so a file is believed only if its own first line names this record's key and this block, and the
digest of its content. Anything else is removed and computed again. So it needs no name to be unfinished under: the
service would take over that file too, and bring it back with every restart of an instance that died meanwhile.
"""

import contextlib
import hashlib
import json
import mmap
import os
import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

from raysm.contract.store import removed_if_torn
from raysm.workloads.disk import full_disk_is_no_room, map_file, settle

V = TypeVar("V")

Buffers: TypeAlias = Sequence[bytes | memoryview]

MAX_LINE_BYTES = 4096

MAPPED_BYTES = 1 << 20
"""Smaller files are read: a mapping holds a file descriptor as long as any view of it lives."""


def _pickled(value: Any) -> Buffers:
    return [pickle.dumps(value, protocol=5)]


def occupied_bytes(folder: Path) -> int:
    """Return what the files below ``folder`` occupy of the disk; 0 where it is not there."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


class BlockRecord(Generic[V]):
    """The values of finished blocks, by the text of the block."""

    def __init__(
        self,
        folder: Path,
        depends_on: Mapping[str, Any],
        *,
        encode: Callable[[V], Buffers] = _pickled,
        decode: Callable[[memoryview], V] = pickle.loads,
        for_later: bool = False,
    ) -> None:
        """Open the record in ``folder``, or begin it; remove what other requests recorded there.

        Args:
            folder: For this record alone.
            depends_on: Everything that the values depend on, as JSON: digests of the input, parameters, versions, the
                block size. Another request never reuses them.
            encode: Turns a value into bytes; the default pickles it, so the folder must be as trusted as the code.
            decode: The reverse. It gets a file's content, mapped if it is large, and may return views of it.
            for_later: Only another run reads what this one saves, so it takes no memory meanwhile.
        """
        text = json.dumps(depends_on, sort_keys=True, separators=(",", ":"))
        self.key = hashlib.sha256(text.encode()).hexdigest()
        self.folder = folder / self.key[:32]
        self.depends_on = depends_on
        self._encode = encode
        self._decode = decode
        self._for_later = for_later
        self._believed: set[str] = set()
        if folder.exists():
            for other in folder.iterdir():
                if other.name != self.folder.name and other.is_dir():
                    shutil.rmtree(other, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        for torn in self.folder.glob(".*"):
            torn.unlink(missing_ok=True)

    def path(self, block: object) -> Path:
        """Return the file of a block."""
        return self.folder / hashlib.sha256(str(block).encode()).hexdigest()[:32]

    def __contains__(self, block: object) -> bool:
        """Return whether the block's value is here, and whole."""
        path = self.path(block)
        if path.name in self._believed:
            return True
        if not path.exists():
            return False
        # Torn by an interruption, or of another block: computing it again costs one block, trusting it would cost
        # the result.
        if not self._whole(path, block):
            path.unlink(missing_ok=True)
            return False
        self._believed.add(path.name)
        return True

    def save(self, block: object, value: V) -> None:
        buffers = self._encode(value)
        digest = hashlib.sha256()
        for buffer in buffers:
            digest.update(buffer)
        path = self.path(block)
        self.folder.mkdir(parents=True, exist_ok=True)
        # A new file: what was there may be mapped.
        path.unlink(missing_ok=True)
        with full_disk_is_no_room(path, f"{block} was recorded"), removed_if_torn(path), path.open("xb") as file:
            file.write(self._line(block, digest.hexdigest()))
            for buffer in buffers:
                file.write(buffer)
            if self._for_later:
                file.flush()
                settle(file.fileno(), 0, file.tell())
        self._believed.add(path.name)

    def load(self, block: object, mapped_bytes: int = MAPPED_BYTES) -> V:
        """Return a recorded value; raise KeyError if it is not here.

        Files of ``mapped_bytes`` or more are mapped, smaller ones read; 0 maps all of them, for a caller that looks at
        little of each.
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
        return self._decode(memoryview(content)[offset:])

    def size_bytes(self) -> int:
        """Return the size of all that is recorded."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def remove(self) -> None:
        """Remove the record: its values are in the result."""
        # The job has its result, so files that cannot be removed do not matter.
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()

    def _line(self, block: object, digest: str) -> bytes:
        # The block's digest, not its text: the line has one length, however long the text is.
        named = hashlib.sha256(str(block).encode()).hexdigest()
        line = json.dumps({"raysm_block": 1, "key": self.key, "block": named, "sha256": digest}).encode() + b"\n"
        # Padded to a multiple of 64 bytes, so that arrays that follow are aligned.
        return line[:-1].ljust(-len(line) % 64 + len(line) - 1) + b"\n"

    def _whole(self, path: Path, block: object) -> bool:
        try:
            with path.open("rb") as file:
                first = file.readline(MAX_LINE_BYTES)
                digest = hashlib.sha256()
                while chunk := file.read(4 << 20):
                    digest.update(chunk)
        except OSError:
            return False
        return first == self._line(block, digest.hexdigest())
