"""The first program of an instance: any Python can read it, and it needs nothing but Python."""

import ast
import importlib.util
import sys
from pathlib import Path

from raysm.bootstrap import commands, start

SOURCE = Path(start.__file__).read_text()


def test_a_python_that_is_too_old_can_read_that_it_is():
    ast.parse(SOURCE, feature_version=(3, 4))
    assert sys.version_info[:2] >= start.LEAST


def test_all_that_it_imports_before_raysm_comes_with_python():
    imports = [node for node in ast.parse(SOURCE).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in imports for alias in node.names}
    assert names <= sys.stdlib_module_names


def test_what_it_and_the_bootstrap_run_by_name_is_there():
    named = [node.module for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.ImportFrom)]
    defaults = commands.Commands()
    named += [command[-1] for command in (defaults.ray, defaults.node_watcher, defaults.driver)]
    assert len(named) == 4
    assert all(importlib.util.find_spec(name) for name in named)
