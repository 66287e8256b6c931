"""README and docs name only what there is, and their code runs as it stands."""

import functools
import importlib
import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import raysm
from raysm.cli import arguments
from raysm.cli.arguments import build_parser, families
from raysm.testing import Answer, FakeSageMaker
from tests.extras import TRIALS
from tests.reference.pages import COMMAND, old_pages
from tests.support.homes import serving
from tests.support.pages import assert_printed, outputs, run_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PACKAGE = ROOT / "PACKAGE.md"
"""What a package index shows."""
PAGES = [
    README,
    *(ROOT / name for name in ("CONTRIBUTING.md", "PACKAGE.md", "containers/README.md")),
    *sorted(DOCS.rglob("*.md")),
]
TIMEOUT_S = 400

FILES = ("io", "toml", "views", "zip")
"""What may stand behind ``raysm.`` and is no name of the API; views are a room that a page shows
how to build."""

REALLY = {
    "README.md": "int(page.neighbors.num_rows == 1797 and page.total == sum(i * i for i in range(100)))",
    "docs/guides/session-notebook.md": "page.value",
    "docs/guides/session.md": "int(page.losses == [1 / 0.1, 1 / 0.2])",
    "docs/guides/script.md": "page.rows // 1_000_000",
}
"""Pages whose Python is run on the embedded SageMaker, each with what is 1 then."""

BY_THEMSELVES = (
    "docs/explanation/extending.md",
    "docs/guides/add-a-feature.md",
    "docs/tutorial/first-job-to-first-training.md",
    "docs/guides/account.md",
    "docs/guides/training-loop.md",
    "docs/guides/local-sagemaker-sdk.md",
)
"""Pages whose Python has a test of its own."""


def name(page):
    return page.relative_to(ROOT).as_posix()


ADDED = {"CountLines", "lines"}
"""The name and the command that the package of ``add-a-feature.md`` adds; its test runs them."""


def found(pattern):
    """Yield each match of ``pattern`` in the pages, with its page."""
    for page in PAGES:
        for match in sorted(set(re.findall(pattern, page.read_text()))):
            yield page, match


def commands(page):
    # Without the help of commands, whose sentences may begin a line with "raysm".
    text = re.sub(r"(?ms)^<!-- generated: .*?^<!-- end -->", "", page.read_text())
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    lines += [
        line
        for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    parts = [part.partition(">>")[0].strip() for line in lines for part in line.split("&&")]
    return [text for text in parts if text.startswith("raysm ") and not re.search(r"[|\[$]", text)]


def has_own_test(page):
    # tests/test_coming_from.py runs these pages.
    return name(page) in BY_THEMSELVES or page.stem.startswith("come-from-")


def python_of(page):
    # Without programs for the page's commands, which begin with their names.
    return "\n".join(re.findall(r"```python\n(?!# \S+\.py\n)(.*?)```", page.read_text(), re.DOTALL))


def with_python():
    pages = [
        page
        for page in PAGES
        if python_of(page) and name(page) not in REALLY and not has_own_test(page)
    ]
    return [pytest.param(page, id=name(page)) for page in pages]


def run(tmp_path, code, command="import page"):
    """Run the code of a page, as a file named ``page.py``, in the root of the repository."""
    (tmp_path / "page.py").write_text(code)
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {command}"
    ended = subprocess.run(
        [sys.executable, "-c", start], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return ended.stdout


def test_every_command_is_one_that_raysm_takes():
    shown = [command for page in PAGES for command in commands(page)]
    assert len(shown) >= 30
    for command in shown:
        if command.split()[1] in ADDED:
            continue
        assert arguments.parse(shlex.split(command)[1:]).command == command.split()[1]


def test_every_link_to_a_file_leads_somewhere():
    # The build of the site checks the anchors, and does not see files outside of docs.
    for page, target in found(r"\]\(([^)#]+)"):
        assert target.startswith("https://") or (page.parent / target).exists(), (page, target)


def test_every_page_of_the_docs_is_in_the_navigation_of_the_site():
    site = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    listed = re.findall(r"'([\w/-]+\.md)'", str(site["nav"]))
    assert sorted(listed) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")
    )
    assert site["site_name"] == f"raysm {raysm.__version__}"


def test_every_page_begins_with_its_title_and_has_one():
    for page in PAGES:
        text = re.sub(r"^<!--.*-->\n\n", "", page.read_text())
        code = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert text.startswith("# "), page
        assert len(re.findall(r"^# ", code, re.MULTILINE)) == 1, page


def test_every_name_of_the_api_is_there_after_import_raysm_alone():
    for page, name in found(r"\braysm\.([A-Za-z_]+)(?!\w*/)"):
        assert (
            name in {*FILES, *ADDED}
            or hasattr(raysm, name)
            or importlib.util.find_spec(f"raysm.{name}")
        ), (
            page,
            name,
        )


def test_every_file_that_a_page_names_is_there():
    for page, path in found(r"\b(?:examples|tests|docs)/[\w./-]+\w"):
        assert (ROOT / path).exists(), (page, path)


def test_every_extra_stands_on_the_page_about_installing_and_no_other_page_says_how_it_is_added():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    listed = (DOCS / "guides" / "install.md").read_text().partition("| extra |")[2]
    # What measures raysm and its pages in a browser is of use in a clone alone, as the tests are.
    assert {extra for extra in extras if f"`{extra}`" not in listed} == {"bench", "browser"}
    # .ci/run installs some of them from nothing, drawn at random.
    assert set(extras) - set(TRIALS) == {"bench", "browser", "test"}
    saying = {name(page) for page in PAGES if re.search(r"pip install 'raysm\[", page.read_text())}
    assert saying == {"PACKAGE.md", "docs/guides/install.md"}


def test_the_reference_lists_each_public_name_of_python_and_each_command():
    modules = [
        raysm,
        *(importlib.import_module(f"raysm.{name}") for name in ("sdk", "testing", "training")),
    ]
    public = {f"{module.__name__}.{item}" for module in modules for item in module.__all__}
    pages = [*(DOCS / "reference" / "api").glob("*.md"), DOCS / "reference" / "ports.md"]
    line = re.compile(r"^(?:- `|<!-- generated: )(raysm[.\w]+)", re.MULTILINE)
    listed = {item for page in pages for item in line.findall(page.read_text())}
    assert public - listed == {
        f"raysm.{name}" for name in ("JobFailed", "JobStopped", "RaysmError")
    }
    assert {item for item in listed - public if item.count(".") == 1} == set()
    rows = re.findall(
        r"^\| ([\w ]+) \| (`.+`) \|$",
        (DOCS / "reference" / "commands.md").read_text(),
        re.MULTILINE,
    )
    assert {title: re.findall(r"`(\w+)`", names) for title, names in rows} == families(
        build_parser()
    )


# The SageMaker SDK's, which the reference lists.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_generated_parts_of_the_pages_are_what_the_code_says():
    old = [name(path) for path in old_pages()]
    assert not old, f"run {COMMAND}"


@pytest.mark.parametrize("page", with_python())
def test_the_python_of_a_page_is_taken_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    fake = FakeSageMaker(tmp_path)
    # A page may use what two scripts leave.
    for _ in range(2):
        fake.answer("script", Answer(files={"model.txt": b"trained"}))
    submit = functools.partial(raysm.submit, on=fake)
    jobs = functools.partial(raysm.jobs, fake)
    code = python_of(page).replace("raysm.submit(", "submit(").replace("raysm.jobs(", "jobs(")
    # As by python3 FILE: what stands below the guard of a page's program is taken too.
    exec(compile(code, str(page), "exec"), {"__name__": "__main__", "submit": submit, "jobs": jobs})


@pytest.mark.usefixtures("home")
# Each forms a cluster, or several; that the README's first command runs is shown by cli/test_main.
@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "one"), [pytest.param(ROOT / page, one, id=page) for page, one in REALLY.items()]
)
def test_the_python_of_a_page_runs_as_it_stands(page, one, tmp_path):
    lines = run(tmp_path, python_of(page), f"import page; print({one})")
    assert lines.splitlines()[-1] == "1"
    assert_printed("\n".join(outputs(page)), lines)


@pytest.mark.long
def test_the_page_about_grids_runs_as_it_stands(home, tmp_path):
    assert_printed(
        "\n".join(outputs("guides/grid.md")),
        run_page(DOCS / "guides" / "grid.md", tmp_path, home),
    )


@pytest.mark.long
def test_the_page_about_resuming_runs_as_it_stands(home, tmp_path):
    assert_printed(
        "\n".join(outputs("guides/resume-a-job.md")),
        run_page(DOCS / "guides" / "resume-a-job.md", tmp_path, home),
    )


@pytest.mark.long
def test_the_page_about_imagenet_trains_on_one_instance_and_resumes_on_three(home, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = run_page(DOCS / "guides" / "training-imagenet.md", tmp_path, home)
    assert_printed("\n".join(outputs("guides/training-imagenet.md")), printed)
    # The epochs of the second training alone: the first is a job of its own.
    accuracies = re.findall(r"^ *\d\d:\d\d:\d\d +([0-9.]+)$", printed, re.MULTILINE)
    assert len(accuracies) == 2
    assert float(accuracies[-1]) > 75
    assert (tmp_path / "out" / "imagenet" / "checkpoint.pth.tar").exists()


@pytest.mark.long
def test_the_job_of_the_page_about_capacity_runs_in_the_third_region(tmp_path):
    with serving(tmp_path / "home") as home:
        printed = run_page(DOCS / "guides" / "no-capacity.md", tmp_path, home)
    assert_printed("\n".join(outputs("guides/no-capacity.md")), printed)


def test_the_page_about_sweeps_shows_the_plan_of_its_command():
    space = {"lr": raysm.loguniform(1e-4, 1e-1), "batch": raysm.choice([32, 64])}
    sweep = raysm.Sweep("train.py", space=space, metric="loss", mode="min", trials=50)
    assert outputs("guides/sweep.md") == [sweep.workload().plan]


def test_each_page_that_shows_output_has_a_test_that_compares_it():
    shows = {
        name(page)
        for page in PAGES
        if outputs(page) and name(page) not in REALLY and not has_own_test(page)
    }
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not {page for page in shows if f'outputs("{page.removeprefix("docs/")}")' not in tests}


def test_the_job_on_aws_can_be_planned_as_it_stands(tmp_path):
    code = python_of(DOCS / "guides" / "account.md").replace(
        "raysm.submit(", "raysm.client.submit.prepare("
    )
    code = code.replace("import raysm\n", "import raysm\nimport raysm.core.client.submit\n", 1)
    lines = run(
        tmp_path,
        code,
        "import page; print(page.job.plan.request['ResourceConfig']['InstanceCount'])",
    )
    assert lines.strip() == "10"


def test_the_project_file_is_taken_as_it_stands(tmp_path):
    (text,) = re.findall(
        r"```toml\n(.*?)```", (DOCS / "guides" / "keep-options-in-a-file.md").read_text(), re.DOTALL
    )
    (tmp_path / "raysm.toml").write_text(text)
    options = raysm.load_options(tmp_path / "raysm.toml", profile="big")
    assert options["cluster"] == raysm.Cluster("ml.c5.4xlarge", count=40)
    assert options["on"].region == "eu-west-1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What the loops of the page about them print, the plain one and the one that validates, in one plain process."""
    folder = tmp_path_factory.mktemp("loops")
    code = python_of(DOCS / "guides" / "training-loop.md")
    runs = (
        "import os, page; from raysm.features.training.cluster.loop import session;"
        f"os.chdir({str(folder)!r}); page.train_loop({{'lr': 0.1}}); session.end(); print('VALIDATES', flush=True);"
        "os.mkdir('other'); os.chdir('other'); page.train_and_validate({'lr': 0.1}); session.end();"
        "print('VALIDATES', flush=True); os.mkdir('tars'); page.write_tars('tars');"
        "page.train_on_tars({'lr': 0.1, 'folder': 'tars'})"
    )
    code += WRITES_TARS
    return run(folder, code, runs).split("VALIDATES")


WRITES_TARS = """
def write_tars(folder):
    generator = torch.Generator().manual_seed(0)
    for number in range(3):
        with tarfile.open(f"{folder}/{number}.tar", "w") as tar:
            for _ in range(200):
                row = torch.randn(64, generator=generator)
                file = io.BytesIO()
                torch.save((row, row[:10].argmax()), file)
                member = tarfile.TarInfo("row")
                member.size = file.tell()
                file.seek(0)
                tar.addfile(member, file)
"""
"""Appended to the page: makes what its stream reads."""


def test_the_loop_on_a_stream_runs_in_one_plain_process_as_it_stands(trained):
    losses = [float(loss) for loss in re.findall(r"loss[ =]+([0-9.e-]+)", trained[2])]
    assert len(losses) == 2 * 10  # batches of 64 from 600 rows
    assert losses[-1] < losses[0]


def test_the_training_loop_runs_in_one_plain_process_as_it_stands(trained):
    losses = [float(loss) for loss in re.findall(r"loss[ =]+([0-9.e-]+)", trained[0])]
    assert losses[-1] < losses[0] / 2


def test_the_loop_that_validates_runs_in_one_plain_process_as_it_stands(trained):
    shares = [float(share) for share in re.findall(r"accuracy[ =]+([0-9.e-]+)", trained[1])]
    assert len(shares) == 2
    # Of ten classes; a model that learned nothing would be right in a tenth.
    assert shares[-1] > 0.3
