"""Ray's private names: what the installed Ray has of them, and what is done without each."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.bootstrap import ray_internals
from raysm.bootstrap.ray_internals import Internal, spare_options
from raysm.errors import MissingDependency

INTERNALS = [value for value in vars(ray_internals).values() if isinstance(value, Internal)]

# What raysm relies on of Ray's source beside names: by module.
WORDS = {
    "ray._private.services": (
        *(f'"{agent}={{}}"' for agent in ray_internals.AGENTS),
        f'"{ray_internals.GCS_PORT}',
        ray_internals.PRESTART,
        # ``handed_socket`` replaces this call, and the dashboard inherits the socket as its standard input.
        "port_test_socket.bind((host, port))",
        "stdin=subprocess.PIPE if pipe_stdin else None",
    ),
    "ray._private.node": ("self.start_monitor()", "self.start_api_server(", "self.all_processes"),
    # A raylet that takes -1 for a service out of use registers its node without the agent.
    "ray.dashboard.agent": ("# Write -1 to indicate the service is not in use.",),
    "ray._private.runtime_env.agent.main": ("sock = socket.socket(family, socktype, proto)", "sock.bind(sockaddr)"),
    "ray.dashboard.http_server_agent": ("site = aiohttp.web.TCPSite(",),
    "ray.dashboard.http_server_head": ("site = aiohttp.web.TCPSite(self.runner, self.http_host, self.http_port)",),
    "ray.scripts.scripts": (
        ray_internals.ENDED,
        ray_internals.REMAINING,
        ray_internals.END_OF_LOG,
        *(f"from {module} import" for module in ray_internals.OTHER_COMMANDS),
    ),
    "ray._private.ray_constants": tuple(f'= "{process}"' for process in (ray_internals.GCS, ray_internals.DASHBOARD)),
    "ray.train.v2.api.data_parallel_trainer": ("DatasetsCallback(",),
}


newest = pytest.mark.skipif(
    not ray_internals.version().startswith("2.60."), reason="an older Ray may lack what only makes jobs faster"
)


@newest
@pytest.mark.parametrize("internal", INTERNALS, ids=lambda internal: f"{internal.module}.{internal.name}")
def test_the_installed_ray_has_each_name(internal):
    assert internal.find() is not None


@newest
@pytest.mark.parametrize("module", WORDS)
def test_the_installed_ray_has_the_words(module):
    source = Path(importlib.util.find_spec(module).origin).read_text()
    assert [words for words in WORDS[module] if words not in source] == []


def test_only_ray_internals_names_ray_s_private_modules():
    offenders = set()
    for path in Path(raysm.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            if any(re.fullmatch(r"ray\._(private|raylet|common)[\w.]*", name) for name in names):
                offenders.add(path.name)
    assert offenders == {"ray_internals.py"}


def test_what_needs_a_missing_name_is_left_out_or_an_error():
    # Any module does: what counts is whether the name is there.
    has, lacks = (Internal(module="types", name=name, purpose="end a node") for name in ("ModuleType", "NoSuchType"))
    assert spare_options(has, {"limit": 1}) == {"limit": 1}
    assert spare_options(lacks, {"limit": 1}) == {}
    lacks.replace(lambda original: pytest.fail("there is nothing to adapt"))
    needed = Internal(module="no_such_module", name="name", purpose="start a node", is_needed=True)
    with pytest.raises(MissingDependency, match="needs to start a node; use Ray >="):
        needed.find()


def test_looking_for_a_name_imports_no_ray_before():
    code = "import sys; import raysm.bootstrap.ray_internals; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=180)
