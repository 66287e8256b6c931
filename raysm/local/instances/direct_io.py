"""A file system of which no mapping is to be had that several processes share: what FastFile's may be.

Run by path (``python -I -S direct_io.py FUSE_FD ROOT LINKS``), so it imports the standard library alone. It serves the
folder ROOT, read-only, to whoever mounts the file descriptor of ``/dev/fuse``; LINKS, a JSON object, says which paths
below ROOT are others of this machine. What flows in are the kernel's requests, what flows out are its answers.

Every file is opened with FOPEN_DIRECT_IO, of which the kernel maps no page to share: ``mmap`` with MAP_SHARED fails
with ENODEV, as it does for many file systems in user space (numpy issue 9894, safetensors issue 545); a private
mapping, and reading, are as ever. The protocol is the kernel's (``include/uapi/linux/fuse.h``;
https://www.kernel.org/doc/html/latest/filesystems/fuse.html), of which a file system that is only read needs little.
"""

import contextlib
import errno
import json
import os
import stat
import struct
import sys
import time
from collections.abc import Callable, Mapping

__all__ = ["DirectFiles", "main", "serve"]

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE, FLUSH = 1, 2, 3, 5, 14, 15, 17, 18, 25
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 26, 27, 28, 29, 36, 38, 42

MAJOR, MINOR = 7, 31
"""Of the protocol; a newer kernel speaks it too."""
FOPEN_DIRECT_IO = 1
ROOT_NODE = 1
READ_BYTES = 1 << 17
BUFFER_BYTES = READ_BYTES + 4096
WRITABLE = os.O_WRONLY | os.O_RDWR

MOUNTED_WITHIN_S = 300.0
"""Whoever mounts it does so once its instance begins; on a machine with other work this process may be the sooner."""
LOOK_S = 0.01

IN_HEADER = struct.Struct("<IIQQIIII")
OUT_HEADER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<6Q10I")
ENTRY = struct.Struct("<QQQQII")
FOR_A_SECOND = struct.Struct("<QII")
OPENED = struct.Struct("<QIi")
READING = struct.Struct("<QQI")
INITIAL = struct.Struct("<IIIIHHIIHHII6I")
DIRECTORY_ENTRY = struct.Struct("<QQII")
ROOM = struct.Struct("<5Q4I6I")


class DirectFiles:
    """The folder as the kernel asks for it: nodes have numbers, opened files have handles."""

    def __init__(self, root: str, links: Mapping[str, str]) -> None:
        """Serve ``root``, in which the paths that ``links`` names are others of this machine."""
        self._links = links
        # The path as it is seen, and the one that it is.
        self._nodes: dict[int, tuple[str, str]] = {ROOT_NODE: ("", root)}
        self._numbers: dict[str, int] = {"": ROOT_NODE}
        self._listings: dict[int, list[tuple[int, int, bytes]]] = {}
        self._next_listing = 0

    def answer(self, opcode: int, node: int, body: bytes) -> bytes:
        """Return the answer to a request, without its header.

        Raises:
            OSError: What the kernel is to hand on to whoever asked.
        """
        operation = self._OPERATIONS.get(opcode)
        if operation is None:
            # What would change something; of what it only asks for in vain, ENOSYS keeps it from asking again.
            raise OSError(errno.ENOSYS, "not served")
        return operation(self, node, body)

    def _path(self, node: int) -> str:
        return self._nodes[node][1]

    def _look_up(self, node: int, body: bytes) -> bytes:
        folder, path = self._nodes[node]
        name = os.fsdecode(body.rstrip(b"\0"))
        below = f"{folder}/{name}" if folder else name
        real = self._links.get(below, f"{path}/{name}")
        # What a link names appears as what it is; every other symbolic link stays one.
        about = os.stat(real) if below in self._links else os.lstat(real)
        number = self._numbers.setdefault(below, len(self._numbers) + 1)
        self._nodes[number] = (below, real)
        return ENTRY.pack(number, 0, 1, 1, 0, 0) + _attributes(number, about)

    def _attributes_of(self, node: int, body: bytes) -> bytes:
        return FOR_A_SECOND.pack(1, 0, 0) + _attributes(node, os.lstat(self._path(node)))

    def _read_link(self, node: int, body: bytes) -> bytes:
        return os.fsencode(os.readlink(self._path(node)))

    def _open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        if flags & WRITABLE:
            raise OSError(errno.EROFS, "read-only")
        return OPENED.pack(os.open(self._path(node), os.O_RDONLY | os.O_CLOEXEC), FOPEN_DIRECT_IO, 0)

    def _read(self, node: int, body: bytes) -> bytes:
        handle, offset, size = READING.unpack_from(body)
        # By its offset: programs that share a descriptor read at several places at once.
        return os.pread(handle, size, offset)

    def _release(self, node: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def _open_folder(self, node: int, body: bytes) -> bytes:
        entries = [
            (entry.inode(), stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12, os.fsencode(entry.name))
            for entry in os.scandir(self._path(node))
        ]
        self._next_listing += 1
        self._listings[self._next_listing] = sorted(entries, key=lambda entry: entry[2])
        return OPENED.pack(self._next_listing, 0, 0)

    def _read_folder(self, node: int, body: bytes) -> bytes:
        handle, offset, size = READING.unpack_from(body)
        listing = b""
        for at, (inode, kind, name) in enumerate(self._listings[handle][offset:], start=offset + 1):
            one = DIRECTORY_ENTRY.pack(inode, at, len(name), kind) + name
            one += bytes(-len(one) % 8)
            if len(listing) + len(one) > size:
                break
            listing += one
        return listing

    def _release_folder(self, node: int, body: bytes) -> bytes:
        del self._listings[struct.unpack_from("<Q", body)[0]]
        return b""

    def _room(self, node: int, body: bytes) -> bytes:
        room = os.statvfs(self._path(node))
        counts = (room.f_blocks, room.f_bfree, room.f_bavail, room.f_files, room.f_ffree)
        return ROOM.pack(*counts, room.f_bsize, room.f_namemax, room.f_frsize, *[0] * 7)

    def _begin(self, node: int, body: bytes) -> bytes:
        _, _, readahead = struct.unpack_from("<III", body)
        return INITIAL.pack(MAJOR, MINOR, readahead, 0, 16, 12, 4096, 1, 0, 0, 0, 0, *[0] * 6)

    def _done(self, node: int, body: bytes) -> bytes:
        return b""

    _OPERATIONS: Mapping[int, Callable[["DirectFiles", int, bytes], bytes]] = {
        INIT: _begin,
        LOOKUP: _look_up,
        GETATTR: _attributes_of,
        READLINK: _read_link,
        OPEN: _open,
        READ: _read,
        RELEASE: _release,
        FLUSH: _done,
        OPENDIR: _open_folder,
        READDIR: _read_folder,
        RELEASEDIR: _release_folder,
        STATFS: _room,
        DESTROY: _done,
    }


def _attributes(node: int, about: os.stat_result) -> bytes:
    nanoseconds = [about.st_atime_ns, about.st_mtime_ns, about.st_ctime_ns]
    seconds, rest = [at // 10**9 for at in nanoseconds], [at % 10**9 for at in nanoseconds]
    owner = (about.st_mode, about.st_nlink, about.st_uid, about.st_gid)
    return ATTRIBUTES.pack(node, about.st_size, about.st_blocks, *seconds, *rest, *owner, 0, 4096, 0)


def serve(descriptor: int, files: DirectFiles, read: Callable[[int, int], bytes] = os.read) -> None:
    """Answer what the kernel asks, from when it is mounted until nobody has it mounted any more.

    Raises:
        PermissionError: nobody mounted it within ``MOUNTED_WITHIN_S`` seconds.
    """
    given_up = time.monotonic() + MOUNTED_WITHIN_S
    while True:
        try:
            request = read(descriptor, BUFFER_BYTES)
        except OSError as error:
            # Nobody has mounted it yet.
            if error.errno == errno.EPERM and time.monotonic() < given_up:
                time.sleep(LOOK_S)
                continue
            # Whoever asked was killed meanwhile.
            if error.errno == errno.ENOENT:
                continue
            if error.errno == errno.ENODEV:
                return
            raise
        if not request:
            return
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        # Of these it wants no answer.
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
            continue
        try:
            number, answer = 0, files.answer(opcode, node, request[IN_HEADER.size :])
        except OSError as error:
            number, answer = -(error.errno or errno.EIO), b""
        # ENOENT: whoever asked was killed meanwhile.
        with contextlib.suppress(FileNotFoundError):
            os.write(descriptor, OUT_HEADER.pack(OUT_HEADER.size + len(answer), number, unique) + answer)


def main() -> None:
    """Serve what the arguments name."""
    serve(int(sys.argv[1]), DirectFiles(sys.argv[2], json.loads(sys.argv[3])))


if __name__ == "__main__":
    main()
