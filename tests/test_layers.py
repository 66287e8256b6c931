"""Which layer may import which, and what `import raysm` loads."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from tests.support.sources import circles, imported, modules_of

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
}

STANDARD_LIBRARY_ONLY = ("errors", "request", "contract", "bootstrap")


def modules():
    return [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name != "__init__.py"]


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_layers_below_its_own(path):
    used = {name.split(".")[1] for name in imported(ast.parse(path.read_text())) if name.startswith("raysm.")}
    assert used - {layer(path), "__version__"} <= ALLOWED[layer(path)]


def test_no_modules_import_each_other():
    assert circles(modules_of(PACKAGE.parent)) == []


def test_what_starts_in_a_bare_image_needs_only_the_standard_library():
    for path in modules():
        if layer(path) in STANDARD_LIBRARY_ONLY:
            foreign = {name.split(".")[0] for name in imported(ast.parse(path.read_text()), top_level_only=True)} - {
                "raysm"
            }
            assert foreign <= sys.stdlib_module_names, path


HEAVY = {"ray", "torch", "boto3", "botocore", "numpy", "pandas", "pyarrow", "rich", "sagemaker", "cloudpickle"}


def pulled_in(code):
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(out.stdout.splitlines()[-1].split())


def test_importing_raysm_and_asking_for_its_request_types_pulls_in_nothing_heavy():
    code = "import raysm; raysm.Cluster, raysm.Similarity, raysm.report, raysm.client, dir(raysm)"
    assert pulled_in(code) & HEAVY == set()


def test_importing_raysm_pulls_in_nothing_else_of_it():
    # What is not read takes no time: on any machine this holds more than a number of seconds would.
    assert {name for name in pulled_in("import raysm") if name.startswith("raysm")} == {"raysm"}


def test_whoever_submits_does_not_wait_for_what_only_a_tunnel_needs():
    modules = pulled_in("import raysm; raysm.submit")
    assert "asyncio" not in modules
    assert not any(name.startswith("raysm.client.tunnel") for name in modules)


def test_an_instance_does_not_wait_before_its_bootstrap_for_what_only_that_or_an_installation_needs():
    assert (
        pulled_in("import raysm.bootstrap.entrypoint") & {"asyncio", "urllib.request", "raysm.bootstrap.package_index"}
        == set()
    )


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


@pytest.mark.parametrize("name", ["testing.FakeSageMaker", "sdk.Ray", "training.report", "client.submit.prepare"])
def test_what_is_named_through_raysm_needs_no_further_import(name):
    code = f"import raysm; assert callable(raysm.{name})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_dir_shows_the_public_names_alone():
    shown = set(dir(raysm))
    for_ray = {"ClientBuilder", "get_job_submission_client_cluster_info"}
    assert shown == {*raysm.__all__, *for_ray, "client", "sdk", "testing", "training", "__version__"}
    assert all(hasattr(raysm, name) for name in shown - {"sdk", "training"})


def test_what_the_client_has_not_is_an_attribute_error():
    assert not hasattr(raysm.client, "nonsense")


def test_every_public_name_can_be_imported():
    assert all(getattr(raysm, name) is not None for name in raysm.__all__)
    assert raysm.__all__ == sorted(raysm.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        raysm.nonsense  # noqa: B018
