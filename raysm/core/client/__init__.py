"""The user's side, on a laptop or in a notebook: plan a job, upload, send it, and fetch its result."""

import importlib
import importlib.util
from typing import Any


def __getattr__(name: str) -> Any:
    # ``raysm.core.client.submit.prepare`` works after ``import raysm`` alone, and costs nothing before.
    if name.startswith("_") or importlib.util.find_spec(f"raysm.core.client.{name}") is None:
        raise AttributeError(f"module 'raysm.core.client' has no attribute {name!r}")
    return importlib.import_module(f"raysm.core.client.{name}")
