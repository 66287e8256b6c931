"""Install each extra from nothing, and do what its page says first: ``python3 -m tests.extras [EXTRA …] [WHEEL]``.

With ``--together`` nothing is installed: uv resolves the extras alone and together, and an extra that lowers a version
of another one fails.

``none`` is raysm without an extra. Each has a virtual environment of its own, because an extra that
finds another's packages hides that it lacks one. What runs a job on this machine has ``local`` too,
as docs/guides/install.md says. ``test`` and ``browser`` are what .ci/run installs for its other
stages, and ``bench`` is for people who measure.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

CLONE = Path(__file__).parents[1]
DOCS = CLONE / "docs"
LIMIT_S = 1800
"""For the installation of an extra, and for what is tried."""


@dataclass(frozen=True)
class Trial:
    commands: str
    """Bash, run in a folder with the Python files of ``page``: by their names, or ``page.py``.

    ``$CLONE`` is the clone.
    """
    page: str = ""
    runs_jobs: bool = True
    constraints: tuple[str, ...] = ()


SHOW_PLOTS = """
import raysm
(job,) = raysm.jobs()
raysm.attach(job.name).plot("loss").save("loss.png")
"""

OPEN_MLFLOW = r"""
raysm run report.py --tracking sqlite:///mlflow.db
raysm ui --no-open > ui.log 2>&1 &
for _ in $(seq 3000); do grep -q http://127 ui.log && break; sleep 0.2; done
url=$(grep -o 'http://127[^ ]*' ui.log | head -1)
python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read()' "$url"
kill %1 && wait || true
"""

ROWS = """
printf 'key,lr\\na,0.1\\nb,0.2\\n' > rows.csv
touch train.py
"""

# The size is in MB.
ALONE = r"""
test "$(du -sm venv/lib | cut -f1)" -lt 60
raysm run report.py --on aws --role arn:aws:iam::123456789012:role/r --region us-east-1 --bucket b \
    --instance-type ml.c5.xlarge --dry-run > plan.json
for needed in 'local demo' 'local doctor' 'local run report.py' 'train train report.py' \
    'interactive session start' 'mlflow ui'; do
    raysm ${needed#* } > said.txt 2>&1 || true
    grep -F "pip install 'raysm[${needed%% *}]'" said.txt
done
"""

PYTEST = (
    'cd "$CLONE" && python3 -m pytest -q -c /dev/null --rootdir . --noconftest --import-mode=importlib'
    " -p no:cacheprovider"
)
"""Without the configuration of the other tests, whose plugins the extra lacks."""

TRIALS = {
    "none": Trial(ALONE, runs_jobs=False),
    "local": Trial("raysm demo"),
    "interactive": Trial("python3 page.py", page="guides/session.md"),
    "notebook": Trial(
        f"raysm run report.py\nipython -c '%load_ext raysm'\npython3 - <<'END'\n{SHOW_PLOTS}END\ntest -s loss.png"
    ),
    "mlflow": Trial(OPEN_MLFLOW),
    "train": Trial(
        'raysm train "$CLONE/examples/torchrun_digits.py" --instances 2 --input data="$CLONE/examples/data"'
        " -- data --epochs 1",
        # Later releases have no small build for machines without a GPU.
        constraints=("torch<2.14",),
    ),
    "batch": Trial('python3 "$CLONE/examples/batch_digits.py" --instances 1 --output out'),
    "sweep": Trial("python3 page.py", page="guides/sweep.md"),
    "sql": Trial(
        f"{ROWS}python3 -c \"import sqlite3; c = sqlite3.connect('rows.db'); c.execute('CREATE TABLE r(key, lr)');"
        " c.execute('INSERT INTO r VALUES (1, 0.1)'); c.commit()\"\n"
        "raysm grid plan train.py --sql sqlite+pysqlite:///rows.db 'SELECT key, lr FROM r' -- --lr '{lr}'",
        runs_jobs=False,
    ),
    "duckdb": Trial(
        f"{ROWS}raysm grid plan train.py --sql duckdb:// \"SELECT * FROM 'rows.csv'\" -- --lr '{{lr}}'",
        runs_jobs=False,
    ),
    "dev": Trial(
        'cd "$CLONE" && python3 -m pytest -q -n 2 -p no:cacheprovider tests/core/request tests/features/grid/sources'
        " tests/features/script/test_request.py",
        runs_jobs=False,
    ),
    "docs": Trial(
        'cp -r "$CLONE"/{docs,raysm,zensical.toml} . && zensical build --strict', runs_jobs=False
    ),
    "airflow": Trial(f"{PYTEST} tests/features/airflow", constraints=("pytest",)),
    "metaflow": Trial(f"{PYTEST} tests/features/metaflow", constraints=("pytest",)),
    "sdk": Trial(
        'eval "$(raysm local up --export)"\npython3 on_ray.py',
        page="guides/local-sagemaker-sdk.md",
    ),
}

REPORT = """import raysm

for step in range(3):
    raysm.report(step=step, loss=1 / (step + 1))
"""


LOWERING = ("mlflow", "sdk")
"""Their packages take no newer versions yet; docs/guides/install.md names what they lower."""


def check_together() -> int:
    """Print which extras lower versions that others have alone; return 1 if one does that is not known to."""
    others = [name for name in TRIALS if name not in (*LOWERING, "none")]
    alone = {name: resolve([name]) for name in others}
    unknown = lowered(alone, resolve(others))
    print(f"extras that are installed together lower: {', '.join(unknown) or 'nothing'}")
    for name in LOWERING:
        print(f"{name} lowers: {', '.join(lowered(alone, resolve([*others, name]))) or 'nothing'}")
    return int(bool(unknown))


def resolve(extras: list[str]) -> dict[str, Version]:
    """Return the versions of all packages of extras of this clone, by name."""
    command = ["uv", "pip", "compile", "-q", "--no-header", "--no-annotate", "pyproject.toml"]
    command += [word for name in extras for word in ("--extra", name)]
    done = subprocess.run(
        command, cwd=CLONE, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"the extras {', '.join(extras)} do not fit together: {done.stderr}")
    pairs = re.findall(r"^([\w.-]+)==([^ ;\n]+)", done.stdout, re.MULTILINE)
    return {name: Version(version) for name, version in pairs}


def lowered(alone: dict[str, dict[str, Version]], together: dict[str, Version]) -> list[str]:
    found = {
        f"{package} {version} to {together[package]}"
        for versions in alone.values()
        for package, version in versions.items()
        # Another version of a package may need fewer packages.
        if package in together and together[package] < version
    }
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Try the extras, all of them by default, of a wheel or of this clone; return 1 if one of them failed."""
    if arguments == ["--together"]:
        return check_together()
    failed = []
    names = [name for name in arguments if not name.endswith(".whl")] or list(TRIALS)
    with tempfile.TemporaryDirectory() as folder:
        wheel = next((Path(name).absolute() for name in arguments if name.endswith(".whl")), None)
        wheel = wheel or build(Path(folder, "wheels"))
        for name in names:
            print(f"extra {name} …", flush=True)
            start = time.monotonic()
            reason = attempt(name, wheel, Path(folder, name))
            print(f"extra {name}: {reason or 'ok'} ({time.monotonic() - start:.0f} s)", flush=True)
            if reason:
                failed.append(f"{name}: {reason}")
    # Once more at the end, because pip and the extras print much.
    print(f"extras that failed: {'; '.join(failed) or 'none'}")
    return int(bool(failed))


def build(folder: Path) -> Path:
    """Return a wheel of this clone."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(CLONE),
    ]
    subprocess.run(command, check=True)
    (wheel,) = folder.glob("raysm-*.whl")
    return wheel


def attempt(name: str, wheel: Path, folder: Path) -> str:
    """Install an extra and try it; return why that failed, or an empty string."""
    trial = TRIALS[name]
    venv.create(folder / "venv")
    extras = f"{name},local" if trial.runs_jobs and name != "local" else name
    wanted = str(wheel) if name == "none" else f"{wheel}[{extras}]"
    # By this Python's pip. Without bytecode, because most modules are never imported.
    pip = [sys.executable, "-m", "pip", "--python", folder / "venv" / "bin" / "python3"]
    install = [*pip, "install", "-q", "--no-compile", wanted, *trial.constraints]
    if reason := run(install, folder):
        return reason
    (folder / "report.py").write_text(REPORT)
    if trial.page:
        text = (DOCS / trial.page).read_text()
        # The first block of each name.
        for file, code in reversed(
            re.findall(r"```python\n(?:# (\S+\.py)\n)?(.*?)```", text, re.DOTALL)
        ):
            path = folder / (file or "page.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(code)
    try:
        return run(["bash", "-euo", "pipefail", "-c", trial.commands], folder)
    finally:
        run([folder / "venv" / "bin" / "raysm", "local", "down"], folder)


def run(command: list, folder: Path) -> str:
    """Run a command with the environment of an extra; print its output and return a reason if it fails."""
    hidden = ("AWS_", "SAGEMAKER_", "RAYSM_", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    environment |= {
        "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
        "RAYSM_HOME": str(folder / "home"),
        "CLONE": str(CLONE),
    }
    try:
        done = subprocess.run(command, cwd=folder, env=environment, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {LIMIT_S} s"
    return f"exit status {done.returncode}" if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
