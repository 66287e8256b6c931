"""Which tests run which lines of one module, and how long each takes: a plugin for pytest, and a module that records.

The module is rewritten so that each of its statements first records its line. That costs less than
a trace function, which Python calls for every function of every module.
"""

import ast
import builtins
import json
import os
import time

import pytest

OUT = "RAYSM_MUTATE_OUT"
"""The variable with the path of what is written: by test, its lines, seconds and outcome."""
RECORD = "_record_line"

# Other processes have no such builtin, and record nothing.
PREAMBLE = f"""
import builtins as _builtins
{RECORD} = getattr(_builtins, "{RECORD}", lambda line: None)
"""


def recording(source: str) -> str:
    """Return a module whose statements record their lines before they run."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [each for one in statements for each in _recorded(one)])
    first = sum(_must_come_first(node) for node in tree.body[:5])
    tree.body[first:first] = ast.parse(PREAMBLE).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _recorded(statement: ast.stmt) -> list[ast.stmt]:
    # ``match`` and decorators begin above what they contain; a docstring must stay where it is.
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return [statement]
    return [*ast.parse(f"{RECORD}({statement.lineno})").body, statement]


def _must_come_first(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


class Measure:
    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.tests: dict[str, dict] = {}
        setattr(builtins, RECORD, self._record)

    def _record(self, line: int) -> None:
        self.seen.add(line)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.seen = set()
        began_s = time.monotonic()
        try:
            return (yield)
        finally:
            test = self._test(item.nodeid)
            test.update(lines=sorted(self.seen), seconds=time.monotonic() - began_s)

    def pytest_runtest_logreport(self, report):
        test = self._test(report.nodeid)
        test["fails"] |= report.failed
        test["skips"] |= report.skipped

    def _test(self, name):
        return self.tests.setdefault(name, {"fails": False, "skips": False})

    def pytest_sessionfinish(self, session):
        with open(os.environ[OUT], "w") as file:
            json.dump(self.tests, file)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Not in pytest_configure: what a conftest.py imports would come before it, and record nothing.
    early_config.pluginmanager.register(Measure())
