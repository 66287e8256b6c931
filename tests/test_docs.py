"""README and docs name only what there is, and their code runs as it stands."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.cli.arguments import parse

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
TIMEOUT_S = 170

ANYWHERE = ("client", "bootstrap")
"""Packages of raysm that a page may name beside the public names."""


def of_each_page(pattern, flags=0):
    """All that ``pattern`` finds in the pages, each with its page."""
    return [
        pytest.param(page, match, id=f"{page.stem}-{match[:40]}")
        for page in PAGES
        for match in sorted(set(re.findall(pattern, page.read_text(), flags)))
    ]


def commands(page):
    lines = [line.strip() for line in page.read_text().splitlines() if line.startswith("    ")]
    parts = [part.strip() for line in lines for part in line.split("&&")]
    return [text for text in parts if text.startswith("raysm ") and not re.search(r"[|\[]", text)]


def python_of(page):
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))


def run(tmp_path, code, command="import page"):
    """Run the code of a page, as a file named ``page.py``, in the root of the repository."""
    (tmp_path / "page.py").write_text(code)
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {command}"
    ended = subprocess.run([sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


@pytest.mark.parametrize(
    ("page", "command"), [pytest.param(page, command, id=command) for page in PAGES for command in commands(page)]
)
def test_every_command_is_one_that_raysm_takes(page, command):
    assert parse(shlex.split(command)[1:]).command == command.split()[1]


def test_there_are_commands_to_look_at():
    assert sum(len(commands(page)) for page in PAGES) >= 8


@pytest.mark.parametrize(("page", "target"), of_each_page(r"\]\(([^)#]+)\)"))
def test_every_link_leads_somewhere(page, target):
    assert target.startswith("https://") or (page.parent / target).exists()


def test_every_page_is_reached_from_the_readme():
    linked = {(ROOT / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", PAGES[0].read_text())}
    assert set(PAGES[1:]) <= linked


@pytest.mark.parametrize(("page", "name"), of_each_page(r"\braysm\.([A-Za-z_]+)(?!\w*/)"))
def test_every_name_of_the_api_is_there_after_import_raysm_alone(page, name):
    assert name in (*ANYWHERE, "io") or hasattr(raysm, name)


@pytest.mark.parametrize(("page", "path"), of_each_page(r"\b(?:examples|tests)/[\w./-]+\w"))
def test_every_file_that_it_names_is_there(page, path):
    assert (ROOT / path).exists()


@pytest.mark.usefixtures("home")
def test_the_python_of_the_readme_runs_as_it_stands(tmp_path):
    lines = run(tmp_path, python_of(PAGES[0]), "import page; print(page.neighbors.num_rows, page.total)")
    assert lines.splitlines()[-1] == f"1797 {sum(i * i for i in range(100))}"


@pytest.mark.long
@pytest.mark.usefixtures("home")
def test_the_python_of_the_first_steps_runs_as_it_stands(tmp_path):
    lines = run(tmp_path, python_of(ROOT / "docs" / "first-steps.md"), "import page; print(page.value, page.rows)")
    assert lines.splitlines()[-1] == "1 1000000"


def test_the_job_on_aws_can_be_planned_as_it_stands(tmp_path):
    code = python_of(ROOT / "docs" / "aws.md").replace("raysm.submit(", "raysm.client.submit.prepare(")
    code = code.replace("import raysm\n", "import raysm\nimport raysm.client.submit\n", 1)
    lines = run(tmp_path, code, "import page; print(page.job.plan.request['ResourceConfig']['InstanceCount'])")
    assert lines.strip() == "10"


def test_the_training_loop_runs_in_one_plain_process_as_it_stands(tmp_path):
    code = python_of(ROOT / "docs" / "training.md")
    lines = run(tmp_path, code, f"import os, page; os.chdir({str(tmp_path)!r}); page.train_loop({{'lr': 0.1}})")
    losses = [float(loss) for loss in re.findall(r"loss[ =]+([0-9.e-]+)", lines)]
    assert losses[-1] < losses[0] / 2
