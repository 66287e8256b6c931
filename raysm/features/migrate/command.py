"""Run ``raysm migrate``: print the equal commands of the jobs in a file."""

from raysm.cli.arguments import Arguments
from raysm.cli.console import Console
from raysm.errors import InvalidRequest, RaysmError
from raysm.features.migrate.api_call import api_differences
from raysm.features.migrate.output import command_lines, python_lines
from raysm.features.migrate.python_file import find_jobs
from raysm.features.migrate.shell_file import find_commands
from raysm.features.migrate.translation import Translation, translate


def run(arguments: Arguments, console: Console) -> int:
    """Print each job; return 1 if one of them has no equal."""
    file = arguments.file
    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix == ".py":
            calls = find_jobs(text, str(file))
        else:
            calls = find_commands(text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} cannot be read: {error}") from error
    except SyntaxError as error:
        raise InvalidRequest(
            f"{file}, line {error.lineno}: {error.msg}", remedy="give a script of Python 3"
        ) from error
    jobs = [translate(call) for call in calls]
    if not jobs:
        raise InvalidRequest(
            f"{file} starts no job of the SageMaker SDK or of simple-sagemaker",
            remedy="give a .py file with an Estimator, a ModelTrainer or a Processor, or a shell "
            "script with ssm run, ssm shell or ssm process",
        )
    # print, because the console would wrap commands that are copied.
    for number, job in enumerate(jobs):
        print("\n" * (number > 0) + f"# {job.title}, line {job.line} of {file.name}")
        print("\n".join(_shown(job)))
    return int(any(job.impossible for job in jobs))


def _shown(job: Translation) -> list[str]:
    if job.impossible:
        return [f"no equal: {job.impossible}"]
    lines = [*" \\\n    ".join(command_lines(job)).splitlines(), "", *python_lines(job)]
    unknown = [f"  {name}: line {value.line}: {value.expression}" for name, value in job.unknown]
    if unknown:
        lines += ["", "not constant: fill in", *unknown]
    if job.remarks:
        lines += ["", "no equal:", *(f"  {name}: {reason}" for name, reason in job.remarks)]
    try:
        api, differing = api_differences(job)
    except (RaysmError, TypeError, ValueError) as error:
        return [*lines, "", f"raysm refuses this job as it stands: {error}"]
    rows = [f"  {path}: {theirs} -> {ours}" for path, theirs, ours in differing]
    return [*lines, "", f"{api}, where raysm's call differs:", *rows]
