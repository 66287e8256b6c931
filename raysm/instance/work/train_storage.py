"""The default storage of Ray Train and Ray Tune in a job on AWS: a prefix of the job's output in S3.

Ray's own default, ``~/ray_results``, is a folder of one instance. With several instances Ray Train
refuses the first
checkpoint: "Unable to set up cluster storage". Ray has no setting for the default, only a constant.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

CONSTANTS = "ray.train.constants"


def set_default_storage(uri: str) -> None:
    """Make ``uri`` the default ``storage_path``; call it before this process imports Ray Train or Ray Tune."""
    sys.meta_path.insert(0, _Finder(uri))


class _Finder(MetaPathFinder):
    """Finds the module of Ray's constants once, and changes the constant right after the module's import."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != CONSTANTS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                vars(module)["DEFAULT_STORAGE_PATH"] = self._uri

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
