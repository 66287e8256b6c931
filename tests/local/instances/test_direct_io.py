"""The file system without shared mappings, asked as the kernel asks it; test_namespace has it mounted."""

import errno
import os
import socket
import stat
import struct

import pytest

from raysm.local.instances import direct_io
from raysm.local.instances.direct_io import ROOT_NODE, DirectFiles


@pytest.fixture
def files(tmp_path):
    """A folder with a file, a folder, a symbolic link, and one file that is another's."""
    (tmp_path / "seen" / "below").mkdir(parents=True)
    (tmp_path / "seen" / "rows").write_bytes(b"0123456789")
    (tmp_path / "seen" / "below" / "mine").write_text("stub")
    (tmp_path / "seen" / "link").symlink_to("rows")
    (tmp_path / "other").write_text("of another folder")
    return DirectFiles(str(tmp_path / "seen"), {"below/mine": str(tmp_path / "other")})


def node_of(files, *names):
    node = ROOT_NODE
    for name in names:
        entry = files.answer(direct_io.LOOKUP, node, os.fsencode(name) + b"\0")
        (node,) = struct.unpack_from("<Q", entry)
    return node


def content(files, node, offset=0, size=100):
    opened = files.answer(direct_io.OPEN, node, struct.pack("<II", os.O_RDONLY, 0))
    handle, flags, _ = direct_io.OPENED.unpack(opened)
    assert flags == direct_io.FOPEN_DIRECT_IO
    try:
        return files.answer(direct_io.READ, node, direct_io.READING.pack(handle, offset, size))
    finally:
        files.answer(direct_io.RELEASE, node, struct.pack("<Q", handle))


def test_a_file_has_its_bytes_and_its_attributes(files):
    node = node_of(files, "rows")
    assert content(files, node, offset=3, size=4) == b"3456"
    about = files.answer(direct_io.GETATTR, node, b"")[direct_io.FOR_A_SECOND.size :]
    number, size, *rest = direct_io.ATTRIBUTES.unpack(about)
    assert (number, size) == (node, 10)
    assert stat.S_ISREG(rest[7])


def test_a_path_that_is_another_of_this_machine_has_that_ones_content(files):
    assert content(files, node_of(files, "below", "mine")) == b"of another folder"


def test_a_symbolic_link_stays_one(files):
    assert files.answer(direct_io.READLINK, node_of(files, "link"), b"") == b"rows"


def test_a_folder_is_listed_in_as_many_answers_as_its_names_need(files):
    opened = files.answer(direct_io.OPENDIR, ROOT_NODE, b"")
    (handle, *_), names, offset = direct_io.OPENED.unpack(opened), [], 0
    while told := files.answer(direct_io.READDIR, ROOT_NODE, direct_io.READING.pack(handle, offset, 40)):
        _, offset, length, _ = direct_io.DIRECTORY_ENTRY.unpack_from(told)
        start = direct_io.DIRECTORY_ENTRY.size
        names.append(told[start : start + length].decode())
    files.answer(direct_io.RELEASEDIR, ROOT_NODE, struct.pack("<Q", handle))
    assert names == ["below", "link", "rows"]


def test_what_is_not_there_or_would_be_changed_is_refused_as_the_kernel_knows_it(files):
    with pytest.raises(FileNotFoundError):
        node_of(files, "absent")
    with pytest.raises(OSError, match="read-only") as refused:
        files.answer(direct_io.OPEN, node_of(files, "rows"), struct.pack("<II", os.O_RDWR, 0))
    assert refused.value.errno == errno.EROFS
    with pytest.raises(OSError, match="not served") as refused:
        files.answer(9, ROOT_NODE, b"")
    assert refused.value.errno == errno.ENOSYS


def test_requests_are_answered_by_their_numbers_until_nobody_asks_any_more(files):
    # Packets, as the kernel's: one read is one request.
    kernel, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def ask(opcode, unique, body=b""):
        size = direct_io.IN_HEADER.size + len(body)
        kernel.send(direct_io.IN_HEADER.pack(size, opcode, unique, ROOT_NODE, 0, 0, 0, 0) + body)

    with kernel, server:
        ask(direct_io.INIT, 1, struct.pack("<IIII", 7, 45, 1 << 17, 0))
        ask(direct_io.FORGET, 2)
        ask(direct_io.LOOKUP, 3, b"absent\0")
        kernel.shutdown(socket.SHUT_WR)
        direct_io.serve(server.fileno(), files)
        first, last = kernel.recv(4096), kernel.recv(4096)
    assert direct_io.OUT_HEADER.unpack_from(first) == (len(first), 0, 1)
    assert struct.unpack_from("<II", first, direct_io.OUT_HEADER.size) == (direct_io.MAJOR, direct_io.MINOR)
    assert direct_io.OUT_HEADER.unpack(last) == (direct_io.OUT_HEADER.size, -errno.ENOENT, 3)


def test_who_begins_to_serve_before_it_is_mounted_waits_for_that(files):
    answers = [OSError(errno.EPERM, "not mounted"), OSError(errno.EPERM, "not mounted"), b""]

    def read(descriptor, size):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    direct_io.serve(-1, files, read)
    assert answers == []


def test_what_nobody_mounts_is_an_error_in_the_end(files, monkeypatch):
    monkeypatch.setattr(direct_io, "MOUNTED_WITHIN_S", 0.0)
    never = OSError(errno.EPERM, "not mounted")

    def read(descriptor, size):
        raise never

    with pytest.raises(PermissionError):
        direct_io.serve(-1, files, read)
