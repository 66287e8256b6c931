"""Whether other users of this machine may change a file or folder.

What it says must not be followed then.

Trusted are this user, root, and for root also the user who called ``sudo``, as git's
``safe.directory`` has it. Systems without Unix users, such as Windows, are not checked.
"""

import os
import shlex
import stat
import struct
from dataclasses import dataclass
from pathlib import Path

try:
    import grp
    import pwd
except ImportError:  # Windows
    pass

ACCESS_LIST = "system.posix_acl_access"
ACCESS_HEAD = 4
ACCESS_ENTRY = "<HHI"
"""Tag, permissions and number of a user or group: struct posix_acl_xattr_entry of
linux/posix_acl_xattr.h."""
NAMED_USER = 2
NAMED_GROUP = 8
WRITE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Distrust:
    """Why a path is not trusted."""

    reason: str
    command: str = ""
    """The shell command after which others may no longer change it; empty if it belongs to another
    user."""


def find_distrust(path: Path) -> Distrust | None:
    """Return why other users may change ``path``, a file or folder that exists, else None.

    The folder of a file counts too, because whoever may write there can replace the file. If it is
    sticky, as ``/tmp`` is, only the owners of the file and of the folder can. Folders above are not
    looked at: who puts another folder in the place of this one owns what lies in it, and that is
    refused.

    Raises:
        OSError: The path does not exist or cannot be reached.
    """
    if not hasattr(os, "geteuid"):
        return None
    # A link counts as well as its target: another user may have chosen which of our own files it
    # names.
    for each in dict.fromkeys((path, path.resolve())):
        if not each.is_dir():
            found = _distrust_one(each.parent, is_sticky_enough=True)
            if found is not None:
                return found
        found = _distrust_one(each)
        if found is not None:
            return found
    return None


def is_trusted_owner(status: os.stat_result) -> bool:
    """Return whether a file belongs to this user or to one who is trusted.

    On systems without Unix users all do.
    """
    return not hasattr(os, "geteuid") or status.st_uid in _trusted_uids()


def _distrust_one(path: Path, *, is_sticky_enough: bool = False) -> Distrust | None:
    status = path.lstat()
    trusted = _trusted_uids()
    quoted = shlex.quote(str(path))
    if status.st_uid not in trusted:
        return Distrust(reason=f"{path} belongs to {_user(status.st_uid)}")
    is_sticky = is_sticky_enough and bool(status.st_mode & stat.S_ISVTX)
    # The mode of a link says nothing.
    if is_sticky or stat.S_ISLNK(status.st_mode):
        return None
    if status.st_mode & stat.S_IWOTH:
        return Distrust(reason=f"all users may write {path}", command=f"chmod go-w {quoted}")
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, trusted):
        return Distrust(
            reason=f"the group {_group(status.st_gid)} may write {path}",
            command=f"chmod g-w {quoted}",
        )
    # With an access list, these bits are the limit of what it grants to others.
    if status.st_mode & stat.S_IWGRP and _grants_writing(path, trusted):
        return Distrust(
            reason=f"an access list lets other users write {path}", command=f"chmod g-w {quoted}"
        )
    return None


def _grants_writing(path: Path, trusted: frozenset[int]) -> bool:
    """Return whether the access list of acl(5) lets a user or group that it names write."""
    try:
        content = os.getxattr(path, ACCESS_LIST)
    # No list, no such attribute of this file system, or no such function of this system.
    except (OSError, AttributeError):
        return False
    entries = list(struct.iter_unpack(ACCESS_ENTRY, content[ACCESS_HEAD:]))
    named = [(tag, number) for tag, permissions, number in entries if permissions & WRITE]
    return any(
        tag == NAMED_GROUP or (tag == NAMED_USER and number not in trusted) for tag, number in named
    )


def _trusted_uids() -> frozenset[int]:
    own = os.geteuid()
    # Who may call sudo can become root anyway.
    caller = os.environ.get("SUDO_UID", "") if own == 0 else ""  # noqa: TID251
    return frozenset({0, own} | ({int(caller)} if caller.isdecimal() else set()))


def _is_private(gid: int, trusted: frozenset[int]) -> bool:
    """Return whether only trusted users are in a group.

    Many systems give each user a group of the same name.
    """
    names = {name for uid in trusted if (name := _name_of(uid)) is not None}
    try:
        group = grp.getgrgid(gid)
    except KeyError:
        # A container that knows neither its user nor its group usually runs as 1000:1000.
        return gid in trusted
    return group.gr_name in names and set(group.gr_mem) <= names


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _user(uid: int) -> str:
    name = _name_of(uid)
    return f"the user with the number {uid}" if name is None else f"the user {name}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"{gid}"
