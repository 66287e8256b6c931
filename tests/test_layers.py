"""Which layer may import which, and what `import raysm` loads."""

import ast
import graphlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.errors import option

PACKAGE = Path(raysm.__file__).parent

ALLOWED = {
    "errors": set(),
    "request": {"errors"},
    "contract": {"errors", "request"},
    "client": {"errors", "request", "contract"},
    "grid": {"errors", "request", "contract", "client"},
    "sdk": {"errors", "request", "contract"},
    "testing": {"errors", "request", "contract", "client"},
    "bootstrap": {"errors", "request", "contract"},
    "workloads": {"errors", "request", "contract", "bootstrap"},
    "training": {"errors", "request", "contract", "bootstrap", "workloads"},
    "local": {"errors", "request", "contract"},
    "views": {"errors", "request", "contract", "client", "grid", "bootstrap", "workloads", "local"},
    "cli": {"errors", "request", "contract", "client", "grid", "bootstrap", "workloads", "local", "views"},
    "__main__": {"cli"},
    "site": set(),
}

STANDARD_LIBRARY_ONLY = {"errors", "request", "contract", "bootstrap"}
"""They also run in a bare image, before any package is installed."""


def modules():
    """Yield each module of the package with its layer; the package itself has none."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path != PACKAGE / "__init__.py":
            yield path, path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def statements(tree):
    """Yield every statement below ``tree``."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(tree, name, []):
            yield inner
            yield from statements(inner)


def imported(body):
    """Yield what the statements import: ``module``, or ``module.name``."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_module_imports_only_from_layers_below_its_own():
    for path, layer in modules():
        names = imported(statements(ast.parse(path.read_text())))
        used = {name.split(".")[1] for name in names if name.startswith("raysm.")}
        assert used - {layer, "__version__"} <= ALLOWED[layer], path


def test_no_modules_import_each_other():
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path, _ in modules()}
    uses = {}
    for name, path in names.items():
        found = set(imported(statements(ast.parse(path.read_text()))))
        # ``from raysm.a import b`` imports the module ``raysm.a.b``, or the name ``b`` of the module ``raysm.a``.
        uses[name] = {used if used in names else used.rpartition(".")[0] for used in found} & set(names) - {name}
    graphlib.TopologicalSorter(uses).prepare()


def test_what_starts_in_a_bare_image_needs_only_the_standard_library():
    for path, layer in modules():
        if layer in STANDARD_LIBRARY_ONLY:
            at_import = {name.split(".")[0] for name in imported(ast.parse(path.read_text()).body)}
            assert at_import <= sys.stdlib_module_names | {"raysm"}, path


NAMED = re.compile(rf"(?<![\w/.])raysm\.(?:{'|'.join(ALLOWED)})(?:\.[A-Za-z_]\w*)+")
"""Dotted names of raysm's modules and of what is in them."""


def is_there(name):
    """Whether a module has that path, or names what stands behind the path of one."""
    parts = name.split(".")[1:]
    for length in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:length])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            return length == len(parts) or re.search(rf"\b{parts[length]}\b", file.read_text()) is not None
    return False


def test_every_module_that_code_or_docs_name_is_there():
    # The page about own kinds shows how such modules are written.
    pages = [page for page in (PACKAGE.parent / "docs").rglob("*.md") if page.name != "extending.md"]
    for path in [*PACKAGE.rglob("*.py"), *pages]:
        for name in NAMED.findall(path.read_text()):
            assert is_there(name), (path, name)


HEAVY = {"ray", "torch", "boto3", "botocore", "numpy", "pandas", "pyarrow", "rich", "sagemaker", "cloudpickle"}


def pulled_in(code):
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(out.stdout.splitlines()[-1].split())


def test_importing_raysm_and_asking_for_its_request_types_pulls_in_nothing_heavy():
    code = "import raysm; raysm.Cluster, raysm.Similarity, raysm.report, raysm.core.client, dir(raysm)"
    assert pulled_in(code) & HEAVY == set()


def test_importing_raysm_pulls_in_nothing_else_of_it():
    # What is not read takes no time: on any machine this holds more than a number of seconds would.
    assert {name for name in pulled_in("import raysm") if name.startswith("raysm")} == {"raysm"}


def test_whoever_submits_does_not_wait_for_what_only_a_tunnel_needs():
    modules = pulled_in("import raysm; raysm.submit")
    assert "asyncio" not in modules
    assert not any(name.startswith("raysm.features.dashboard.tunnel") for name in modules)


def test_an_instance_does_not_wait_before_its_bootstrap_for_what_only_that_or_an_installation_needs():
    assert pulled_in("import raysm.instance.entrypoint") & {"asyncio", "urllib.request"} == set()


LATER = (
    *(
        "client.costs.bill",
        "client.logs.stream",
        "client.logs.metrics",
        "client.logs.rendering",
        "client.results.result",
        "client.logs.tracking",
    ),
    *("client.source.function", "contract.events", "contract.mirror"),
)
"""What only one method of a job's handle asks for, or few jobs."""


def test_whoever_submits_does_not_wait_for_what_reads_a_job_back():
    # As names, which hold on any machine: together they were a quarter of the time until a job could be sent.
    assert pulled_in("import raysm; raysm.submit") & {f"raysm.{name}" for name in LATER} == set()
    # A module that was renamed would be absent for ever.
    assert all(importlib.util.find_spec(f"raysm.{name}") for name in LATER)


def test_whoever_submits_does_not_wait_for_what_only_a_slip_or_a_notebook_needs():
    assert pulled_in("import raysm; raysm.submit") & {"difflib", "html", "platform"} == set()


@pytest.mark.parametrize(
    "name",
    [
        "testing.FakeSageMaker",
        pytest.param("sdk.Ray", marks=pytest.mark.long),
        "training.report",
        "client.submit.prepare",
    ],
)
def test_what_is_named_through_raysm_needs_no_further_import(name):
    code = f"import raysm; assert callable(raysm.{name})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_dir_shows_the_public_names_alone():
    shown = set(dir(raysm))
    for_ray = {"ClientBuilder", "get_job_submission_client_cluster_info"}
    assert shown == {*raysm.__all__, *for_ray, "client", "errors", "sdk", "testing", "training", "__version__"}
    assert all(hasattr(raysm, name) for name in shown - {"sdk", "training"})


def test_what_the_client_has_not_is_an_attribute_error():
    assert not hasattr(raysm.core.client, "nonsense")


def test_every_public_name_can_be_imported():
    assert all(getattr(raysm, name) is not None for name in raysm.__all__)
    assert raysm.__all__ == sorted(raysm.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nonsense'"):
        raysm.nonsense  # noqa: B018


@pytest.mark.parametrize("column", ["id", "the id", "o'clock", "$x"])
def test_an_option_is_named_so_that_a_shell_and_python_can_take_it(column):
    text = option("id_column", column)
    assert shlex.split(text.partition(" (")[0]) == ["--id-column", column]
    assert text.endswith(f"(in Python: id_column={column!r})")


def test_an_option_whose_value_is_the_readers_has_none():
    assert option("image") == "--image … (in Python: image=…)"
