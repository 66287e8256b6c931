"""Play AWS's framework images for a job without an entry point: run the script that a hyperparameter names.

::

    python3 framework_image.py /opt/ml

An instance runs this program by its path, so it imports only the standard library. It reads ``hyperparameters.json``
and the other configuration files, and runs the script with arguments (``--epochs 3``) and ``SM_*`` variables. After a
failure it writes ``output/failure``. Names and rules are those of sagemaker-training-toolkit
(https://github.com/aws/sagemaker-training-toolkit), so that a job that the SageMaker SDK sends for a PyTorch image runs
here.
"""

import collections
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

PROGRAM = "sagemaker_program"
SUBMITTED = "sagemaker_submit_directory"
"""Hyperparameters of the toolkit; without them, the variables of the same names in capitals count."""
BASE = "/opt/ml"
TAIL_LINES = 20
"""Last lines of stderr in the failure file, of which the service shows 1024 characters."""


def main(base: str) -> int:
    """Run the script of the instance whose ``/opt/ml`` is ``base``; return its exit code."""
    root = Path(base)
    variables = os.environ  # noqa: TID251  this program imports nothing of raysm
    hyperparameters = decoded(_read(root / "input/config/hyperparameters.json"))
    program = hyperparameters.get(PROGRAM) or variables.get(PROGRAM.upper())
    submitted = hyperparameters.get(SUBMITTED) or variables.get(SUBMITTED.upper())
    try:
        code = _copy_code(root, str(submitted or ""))
        command = _command(code, str(program))
        _install(code)
    except (OSError, tarfile.TarError, subprocess.CalledProcessError) as error:
        return _fail(root, f"ClientError: {error}", 1)
    arguments = arguments_of(hyperparameters)
    sm_variables = variables_of(root, hyperparameters, command[-1], arguments)
    return _run(root, [*command, *arguments], code, {**variables, **sm_variables})


def decoded(hyperparameters: Mapping[str, str]) -> dict[str, Any]:
    """Decode the hyperparameters that are JSON, as SDKs before version 3 write them."""
    values: dict[str, Any] = {}
    for name, text in hyperparameters.items():
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def arguments_of(hyperparameters: Mapping[str, Any]) -> list[str]:
    """Return the script's arguments by name, without the toolkit's own."""
    words: list[str] = []
    for name, value in sorted(hyperparameters.items()):
        if not name.startswith("sagemaker_"):
            words += [f"-{name}" if len(name) == 1 else f"--{name}", str(value)]
    return words


def variables_of(
    root: Path, hyperparameters: Mapping[str, Any], program: str, arguments: Iterable[str]
) -> dict[str, str]:
    """Return the ``SM_*`` variables of an instance."""
    resources = _read(root / "input/config/resourceconfig.json")
    channels = _read(root / "input/config/inputdataconfig.json")
    script_values = {name: value for name, value in hyperparameters.items() if name not in (PROGRAM, SUBMITTED)}
    values: dict[str, Any] = {
        "hosts": resources.get("hosts", []),
        "current_host": resources.get("current_host", ""),
        "network_interface_name": resources.get("network_interface_name", ""),
        "channels": sorted(channels),
        "hps": script_values,
        "input_dir": str(root / "input"),
        "input_config_dir": str(root / "input/config"),
        "input_data_config": channels,
        "resource_config": resources,
        "model_dir": str(root / "model"),
        "output_dir": str(root / "output"),
        "output_data_dir": str(root / "output/data"),
        "output_intermediate_dir": str(root / "output/intermediate"),
        "num_cpus": os.cpu_count() or 1,
        "num_gpus": 0,
        "user_entry_point": program,
        "module_name": Path(program).stem,
        "user_args": list(arguments),
        **{f"channel_{name}": str(root / "input/data" / name) for name in channels},
        **{f"hp_{name}": value for name, value in script_values.items()},
    }
    return {
        f"SM_{name.upper()}": value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in values.items()
    }


def _copy_code(root: Path, submitted: str) -> Path:
    """Copy the user's code to ``/opt/ml/code``, as the toolkit does; return that folder."""
    code = root / "code"
    # The embedded server brings code from S3 as a channel, because an instance cannot reach its S3.
    if submitted.startswith("s3://"):
        place = root / "input/data" / SUBMITTED
    else:
        place = _moved_below(root, submitted or str(code))
    if not place.is_dir():
        raise FileNotFoundError(f"{SUBMITTED}={submitted!r} is neither a folder here nor an s3:// URI")
    if place != code:
        shutil.copytree(place, code, dirs_exist_ok=True)
        for archive in [path for path in code.iterdir() if path.is_file() and tarfile.is_tarfile(path)]:
            with tarfile.open(archive) as content:
                # Python 3.11.3 and earlier do not know the argument "filter".
                content.extraction_filter = getattr(tarfile, "data_filter", None)
                content.extractall(code)
            archive.unlink()
    return code


def _moved_below(root: Path, path: str) -> Path:
    """Return a path below ``/opt/ml`` as one below ``root``, because instances of kind process have it elsewhere."""
    return root / Path(path).relative_to(BASE) if Path(path).is_relative_to(BASE) else Path(path)


def _command(code: Path, program: str) -> list[str]:
    if not (code / program).is_file():
        raise FileNotFoundError(f"{PROGRAM}={program!r} is not among the code: {sorted(os.listdir(code))}")
    return [sys.executable, program] if program.endswith(".py") else ["/bin/sh", program]


def _install(code: Path) -> None:
    requirements = code / "requirements.txt"
    if requirements.is_file():
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "-r", str(requirements)], check=True)


def _run(root: Path, command: list[str], code: Path, variables: Mapping[str, str]) -> int:
    """Run the script to its end; after a failure write the end of its stderr to the failure file."""
    process = subprocess.Popen(
        command,
        cwd=code,
        # Unbuffered, because metrics are read from the lines.
        env={"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(code), **variables},
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )

    def pass_on(number: int, frame: FrameType | None) -> None:
        process.send_signal(number)

    # SageMaker signals only the main process, which is this one.
    signal.signal(signal.SIGTERM, pass_on)
    tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
    assert process.stderr is not None
    for line in process.stderr:
        sys.stderr.write(line)
        tail.append(line)
    status = process.wait()
    if not status:
        return 0
    reason = (
        f'ExecuteUserScriptError:\nExitCode {status}\nErrorMessage "{"".join(tail)}"\nCommand "{" ".join(command)}"'
    )
    return _fail(root, reason, status)


def _fail(root: Path, reason: str, status: int) -> int:
    (root / "output/failure").write_text(reason)
    sys.stderr.write(f"{reason}\n")
    # As a shell does: 128 + signal for a script that was killed.
    return status if status > 0 else 128 - status


def _read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return content


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
