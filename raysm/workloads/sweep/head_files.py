"""Files on the head, for every process of the cluster: where the checkpoints of a sweep's trials lie.

SageMaker gives instances no folder that they share, and Ray Tune wants one for checkpoints. What flows in are pieces of
files from any instance, what flows out are the same files below one folder of the head's disk, each whole or absent,
as a filesystem of Arrow's, which is what Tune asks for.
"""

import functools
import io
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import ray

from raysm.contract.store import PARTIAL
from raysm.workloads.nodes import only_on

__all__ = ["HeadFileSystem", "HeadFiles", "serve_files"]

PIECE_BYTES = 8 << 20
"""So much of a file travels at a time: memory holds a few of them, however large a checkpoint is."""

AT_ONCE = 8
"""Calls that the head answers at a time: trials that read and write at once wait for the disk, not for each other."""

Info = tuple[str, str, int, float]
"""Path, ``file`` or ``folder`` or ``absent``, bytes, and time of modification."""


class HeadFiles:
    """The files, on the head; an actor. Paths are relative to its folder, with or without a slash in front."""

    def __init__(self, root: str) -> None:
        """Serve the folder ``root``, made if it is not there."""
        self._root = Path(root)
        self._root.mkdir(parents=True, exist_ok=True)

    def infos(self, paths: list[str]) -> list[Info]:
        """Return what is at each path."""
        return [self._info(self._at(path)) for path in paths]

    def inside(self, folder: str, recursive: bool) -> list[Info] | None:
        """Return what is in a folder, None where there is none."""
        at = self._at(folder)
        if not at.is_dir():
            return None
        paths = sorted(at.rglob("*") if recursive else at.iterdir())
        # What is being written beside its name is no file of anybody's yet.
        return [self._info(path) for path in paths if not path.name.endswith(PARTIAL)]

    def make_folder(self, folder: str) -> None:
        """Make a folder, with those above it."""
        self._at(folder).mkdir(parents=True, exist_ok=True)

    def remove(self, path: str, *, contents_only: bool = False) -> None:
        """Remove a file or a folder."""
        at = self._at(path)
        if at.is_dir():
            shutil.rmtree(at)
        else:
            at.unlink()
        if contents_only:
            at.mkdir()

    def move(self, path: str, target: str) -> None:
        """Rename a file or a folder."""
        self._at(path).replace(self._at(target))

    def read(self, path: str, offset: int, length: int) -> bytes:
        """Return a piece of a file."""
        # Opened for each piece: an actor that held files for processes that die would run out of descriptors.
        with self._at(path).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    def write(self, path: str, content: bytes, *, offset: int, last: bool) -> None:
        """Write a piece of a new file; with the last one it gets its name."""
        target = self._at(path)
        beside = target.with_name(target.name + PARTIAL)
        # By its place, not at the end: a call that Ray repeats writes the same bytes there again.
        with beside.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(content)
        if last:
            beside.replace(target)

    def _at(self, path: str) -> Path:
        at = (self._root / path.lstrip("/")).absolute()
        # The trials' own code chooses names below it, and no others.
        if ".." in Path(path).parts:
            raise PermissionError(f"{path} is outside of the folder of the sweep")
        return at

    def _info(self, path: Path) -> Info:
        # The root itself is ".", and is "/" to Tune.
        name = "/" + path.relative_to(self._root.absolute()).as_posix().removeprefix(".")
        if path.is_dir():
            return name, "folder", 0, path.stat().st_mtime
        if path.exists():
            stat = path.stat()
            return name, "file", stat.st_size, stat.st_mtime
        # Not an error: Arrow asks for what may not be there.
        return name, "absent", 0, 0.0


def serve_files(root: Path, node_id: str, name: str) -> Any:
    """Start the actor that serves ``root`` on a node; who drops what is returned ends it.

    Args:
        root: On that node.
        node_id: Ray's, of the head.
        name: By which the filesystem finds it, in the namespace of this driver.
    """
    kind = ray.remote(num_cpus=0, max_concurrency=AT_ONCE, scheduling_strategy=only_on(node_id))(HeadFiles)
    # By a name, since Tune pickles the filesystem: handles of actors in it would keep the actor alive.
    actor = kind.options(name=name).remote(str(root))
    # Else what stands in its way would be said by the first trial, as its own failure.
    ray.get(actor.infos.remote(["/"]))
    return actor


class HeadFileSystem(pafs.FileSystemHandler):  # type: ignore[misc]
    """The same as a filesystem of Arrow's; pickled, it is the actor's name."""

    def __init__(self, name: str) -> None:
        """Ask the actor ``name``."""
        self._name = name

    def __getstate__(self) -> dict[str, str]:
        return {"_name": self._name}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HeadFileSystem) and other._name == self._name

    def __hash__(self) -> int:
        # Two of one name are equal, in whichever process they were made.
        return hash(self._name)

    # Not at once: it is unpickled in processes that have not joined Ray yet.
    @functools.cached_property
    def _actor(self) -> Any:
        return ray.get_actor(self._name)

    def _call(self, method: str, *arguments: Any, **named: Any) -> Any:
        try:
            return ray.get(getattr(self._actor, method).remote(*arguments, **named))
        except ray.exceptions.RayTaskError as error:
            # FileNotFoundError and the like, by which Arrow knows what happened.
            raise error.cause from None

    def get_type_name(self) -> str:
        """Return its name in messages."""
        return "raysm-head"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """Return what is at each path."""
        # Under the names that were asked for: with and without a slash in front they are the same.
        infos = self._call("infos", paths)
        return [_file_info((path, *info[1:])) for path, info in zip(paths, infos, strict=True)]

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return what is in a folder."""
        infos = self._call("inside", selector.base_dir, selector.recursive)
        if infos is None:
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(selector.base_dir)
        return [_file_info(info) for info in infos]

    def create_dir(self, path: str, recursive: bool) -> None:
        """Make a folder."""
        self._call("make_folder", path)

    def delete_dir(self, path: str) -> None:
        """Remove a folder."""
        self._call("remove", path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Empty a folder."""
        self._call("remove", path, contents_only=True)

    def delete_root_dir_contents(self) -> None:
        """Empty all of it."""
        self._call("remove", "/", contents_only=True)

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        self._call("remove", path)

    def move(self, src: str, dest: str) -> None:
        """Rename."""
        self._call("move", src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy a file, through this process."""
        with self.open_input_stream(src) as source, self.open_output_stream(dest, None) as target:
            while piece := source.read(PIECE_BYTES):
                target.write(piece)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Return a file for reading."""
        ((_, kind, size, _),) = self._call("infos", [path])
        if kind != "file":
            raise FileNotFoundError(path)
        # Buffered by pieces: Arrow and pickle read a few bytes at a time, each of which would be a call.
        return pa.PythonFile(io.BufferedReader(_Reader(self._call, path, size), PIECE_BYTES), mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return the same, which can seek."""
        return self.open_input_stream(path)

    def open_output_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Return a file for writing; it has its name once it is closed."""
        return pa.PythonFile(_Writer(self._call, path), mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        """Refuse: a file that is there stays as it is."""
        raise NotImplementedError(f"{path}: files of a sweep are written once")


class _Reader(io.RawIOBase):
    def __init__(self, call: Any, path: str, size: int) -> None:
        self._call, self._path, self._size, self._offset = call, path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = begin + offset
        return self._offset

    def tell(self) -> int:
        return self._offset

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._offset)
        content = self._call("read", self._path, self._offset, count) if count > 0 else b""
        buffer[: len(content)] = content
        self._offset += len(content)
        return len(content)


class _Writer(io.RawIOBase):
    def __init__(self, call: Any, path: str) -> None:
        self._call, self._path, self._offset, self._waiting = call, path, 0, bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        # Strictly more: the last piece is sent by ``close``, which names the file by it.
        while len(self._waiting) > PIECE_BYTES:
            self._send(bytes(self._waiting[:PIECE_BYTES]), last=False)
            del self._waiting[:PIECE_BYTES]
        return len(data)

    def close(self) -> None:
        if not self.closed:
            # Also without a byte: an empty file has a name, too.
            self._send(bytes(self._waiting), last=True)
        super().close()

    def _send(self, content: bytes, *, last: bool) -> None:
        self._call("write", self._path, content, offset=self._offset, last=last)
        self._offset += len(content)


def _file_info(info: Info) -> pafs.FileInfo:
    path, kind, size, modified_s = info
    types = {"file": pafs.FileType.File, "folder": pafs.FileType.Directory, "absent": pafs.FileType.NotFound}
    if kind != "file":
        return pafs.FileInfo(path, types[kind])
    return pafs.FileInfo(path, types[kind], size=size, mtime=modified_s)
