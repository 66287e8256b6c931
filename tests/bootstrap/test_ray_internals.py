"""Ray's private names: what the installed Ray has of them, and what is done without each."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.bootstrap import ray_internals
from raysm.bootstrap.ray_internals import CHECKLIST, SETTINGS, spare_options
from raysm.bootstrap.ray_names import Internal

PACKAGE = Path(raysm.__file__).parent
OF_RAY = re.compile(
    r"RAY_\w+|AUTOSCALER_METRIC_PORT|DASHBOARD_METRIC_PORT|METRICS_RECORD_\w+|SCAN_EVENT_\w+|EVENT_AGENT_\w+"
)


@pytest.mark.parametrize("entry", CHECKLIST, ids=lambda entry: entry.path.replace(" ", "_"))
def test_the_installed_ray_has_what_raysm_uses_of_it(entry):
    assert entry.gap() is None


def test_every_variable_of_ray_s_that_raysm_sets_is_on_the_checklist():
    quoted = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name == "ray_internals.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and OF_RAY.fullmatch(node.value):
                quoted.add(node.value)
    quoted -= {"RAY_TEMP_DIR", "RAY_RANGE", "RAY_LOGS"}  # raysm's own constants, which __all__ names
    assert quoted
    assert quoted <= {setting.name for setting in SETTINGS}


def test_only_ray_internals_names_ray_s_private_modules():
    offenders = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            if any(re.fullmatch(r"ray\._(private|raylet|common)[\w.]*", name) for name in names):
                offenders.append(path.name)
    assert set(offenders) == {"ray_internals.py"}


def test_options_that_ray_does_not_take_any_more_are_left_out(capfd):
    # Any module does: what counts is whether the name is there.
    has, lacks = (Internal(module="types", name=name, purpose="end a node") for name in ("ModuleType", "NoSuchType"))
    assert spare_options(has, {"limit": 1}) == {"limit": 1}
    assert spare_options(lacks, {"limit": 1}) == {}
    assert "no types.NoSuchType" in capfd.readouterr().err


def test_the_checklist_is_printed_and_its_exit_code_says_whether_it_is_whole():
    listed = subprocess.run(
        [sys.executable, "-m", "raysm.bootstrap.ray_internals"], capture_output=True, text=True, timeout=120
    )
    assert listed.returncode == 0, listed.stdout
    assert listed.stdout.splitlines()[-1] == f"{len(CHECKLIST)} of {len(CHECKLIST)} are there"


def test_the_checklist_of_a_machine_without_ray_misses_everything_that_is_looked_for():
    code = "import sys; sys.modules['ray'] = None; from raysm.bootstrap.ray_internals import main; sys.exit(main())"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert listed.returncode == 1
    assert f"0 of {len(CHECKLIST)} are there" in listed.stdout
    assert "raysm cannot learn which nodes are registered" in listed.stdout


def test_looking_for_a_name_imports_no_ray_before():
    code = "import sys; import raysm.bootstrap.ray_internals; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
    assert ray_internals.PRESTART.startswith("--")
