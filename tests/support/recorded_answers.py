"""What SageMaker answered in public, read from ``recorded/answers.toml``."""

import tomllib
from pathlib import Path

import pytest

ANSWERS = tomllib.loads((Path(__file__).parent / "recorded" / "answers.toml").read_text())


def sourced(values):
    """Return values with the source of each as what a test of it is called."""
    return [
        pytest.param(value, id=value["source"].rpartition("github.com/")[2]) for value in values
    ]
