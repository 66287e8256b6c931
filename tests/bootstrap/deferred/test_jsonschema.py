"""The package ``jsonschema``, brought when something is first validated."""

import os
import subprocess
import sys

import pytest

from raysm.bootstrap.deferred import FOLDER

PROGRAM = """
import sys
import ray
parts = [name for name in sys.modules if name.startswith(("jsonschema.", "wcwidth."))]
print(parts)
from ray._private.runtime_env.plugin_schema_manager import RuntimeEnvPluginSchemaManager as Schemas
import jsonschema
try:
    jsonschema.validate(1, {"type": "string"})
except jsonschema.ValidationError as error:
    print(error.message)
from jsonschema.exceptions import ValidationError
print(ValidationError is jsonschema.ValidationError)
"""


def test_ray_is_imported_without_it_and_validates_by_it():
    pytest.importorskip("jsonschema")
    environ = {**os.environ, "PYTHONPATH": str(FOLDER)}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True)
    assert ended.stdout.splitlines() == ["[]", "1 is not of type 'string'", "True"], ended.stderr


def test_as_a_part_of_raysm_it_is_found_too():
    pytest.importorskip("jsonschema")
    from raysm.bootstrap.deferred import jsonschema

    assert jsonschema.validate(1, {"type": "integer"}) is None
