"""botocore's descriptions of AWS's services, read once by a process of tests."""

from pathlib import Path

import botocore
from botocore.loaders import JSONFileLoader, Loader

FOLDER = str(Path(botocore.__file__).parent / "data")


class ReadOnce(JSONFileLoader):
    """Botocore's own reader, which remembers what of botocore itself it has read."""

    read = {}

    def load_file(self, file_path):
        # Not a test's own files, which may change, nor that there is none.
        if not file_path.startswith(FOLDER):
            return super().load_file(file_path)
        if file_path not in self.read and (content := super().load_file(file_path)) is not None:
            self.read[file_path] = content
        return self.read.get(file_path)


def read_once():
    """Have all sessions of this process that are made from now on share what they read."""
    Loader.FILE_LOADER_CLASS = ReadOnce
