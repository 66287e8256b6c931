"""Inputs on file systems of AWS: ``efs://fs-…/folder`` and ``fsx://fs-…/MOUNT/folder``.

SageMaker mounts the folder in each instance, and downloads nothing
(https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_FileSystemDataSource.html).
"""

import re
from dataclasses import dataclass

from raysm.errors import InvalidRequest

EFS = "EFS"
LUSTRE = "FSxLustre"
KINDS = {"efs": EFS, "fsx": LUSTRE}
"""What the service calls each kind, by the scheme of its URI."""
ID = re.compile(r"fs-[0-9a-f]{8,18}")


@dataclass(frozen=True, slots=True)
class FileSystem:
    """One folder of a file system."""

    id: str
    kind: str
    """``EFS`` or ``FSxLustre``."""
    directory: str
    """The folder's path, ``/a/b``; in FSx for Lustre it begins with the mount name."""

    @property
    def path(self) -> str:
        """The folder's path from the root of the file system, ``a/b``, without the mount name."""
        path = self.directory.lstrip("/")
        return path.partition("/")[2] if self.kind == LUSTRE else path


def file_system_at(uri: str) -> FileSystem | None:
    """Return the folder that ``uri`` names, or None if it is not on a file system.

    Raises:
        InvalidRequest: The id or the path is none that the service takes.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme not in KINDS:
        return None
    name, _, path = rest.partition("/")
    kind = KINDS[scheme]
    parts = [part for part in path.split("/") if part]
    if not ID.fullmatch(name):
        raise InvalidRequest(
            f"{uri!r} has no file system: {name!r} is not fs- and 8 to 18 digits of 0-9a-f; "
            f"give {scheme}://fs-0123456789abcdef0/{path}"
        )
    if ".." in parts:
        raise InvalidRequest(f"{uri!r} has .. in its path; give the folder's path without it")
    if kind == LUSTRE and not parts:
        raise InvalidRequest(
            f"{uri!r} lacks the mount name, with which paths of FSx for Lustre begin: "
            f"fsx://{name}/MOUNT/folder; aws fsx describe-file-systems prints it (MountName)"
        )
    return FileSystem(name, kind, "/" + "/".join(parts))
