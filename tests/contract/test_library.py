import io
import re
import zipfile
from pathlib import PurePosixPath

from raysm.contract.library import library


def test_what_c_files_include_travels_with_them():
    with zipfile.ZipFile(io.BytesIO(library())) as archive:
        names = set(archive.namelist())
        sources = {name: archive.read(name).decode() for name in names if name.endswith(".c")}
    included = {
        str(PurePosixPath(name).with_name(header))
        for name, text in sources.items()
        for header in re.findall(r'#include "(.+)"', text)
    }
    assert included
    assert included <= names
