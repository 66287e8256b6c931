"""Names of files that mean something else in a URI, in a shell, on a terminal or on another system."""

import os

ODD_NAMES = [
    "report 1.txt",
    "report%201.txt",
    "https%3A%2F%2Fexample.org%2Fa",
    "list?page=2.html",
    "issue#7.txt",
    "..%2F..%2Fescaped.txt",
    "%2e%2e",
    "nul%00.txt",
    "%",
    " leading",
    "trailing ",
    "tab\t.txt",
    "\x01control",
    "~",
    "~root",
    "*",
    "[a].txt",
    "a\\b.txt",
    "..a",
    "...",
    "CON",
    "s3:",
    "file:",
    "&amp;",
    "+plus+",
    "e\u0301.txt",
    "\u00e9.txt",
    "😀.txt",
    "x" * 250,
    "mine.partial",
    "sub folder/in%20ner#1?.txt",
]
"""Names that files of Linux and keys of S3 can have."""

NOT_UTF8 = os.fsdecode(b"caf\xe9.txt")
ONLY_FILES = [*ODD_NAMES, "new\nline.txt", NOT_UTF8]
"""Names that files of Linux can have."""


def write_all(folder, names):
    """Write a file of each name; its content is the name's bytes."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(name))


def read_all(folder):
    """Return the name and content of each file below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def contents(names):
    """Return what ``read_all`` returns for files that ``write_all`` has written."""
    return {name: os.fsencode(name) for name in names}
