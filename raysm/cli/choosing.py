"""From a parsed command line to what applies: the project file, its profile, a request's file, and the flags over them.

What flows in are the parsed arguments, what flows out are Settings; nothing is checked together yet, nothing sent.
"""

from pathlib import Path

from raysm.cli.arguments import Arguments
from raysm.cli.flag_layer import flag_layer
from raysm.cli.flags import WORKLOADS
from raysm.client.project import Project, find_project_file, read_request
from raysm.client.settings import Key, Layer, Settings
from raysm.errors import InvalidRequest
from raysm.request.similarity import MATRIX

__all__ = ["NO_ROLE", "project_file", "read_settings"]

NO_ROLE = "arn:aws:iam::000000000000:role/none"
"""A target is not made without a role; to plan, to read and to look takes none."""


def read_settings(arguments: Arguments, *files: Layer) -> Settings:
    """Return what applies to a command.

    Args:
        arguments: The parsed command line.
        files: What files of the command's own say, over those of the project and below every flag.

    Raises:
        InvalidRequest: A file cannot be read or says what there is not, or a flag's value is malformed.
    """
    layers = [*_file_layers(arguments), *files]
    # Laid over each other once before: a flag of several targets is the one's that the files name.
    flags = flag_layer(arguments, Settings(layers).on.kind)
    return Settings([*layers, _workload_layer(arguments), flags])


def project_file(arguments: Arguments) -> Path | None:
    """Return the project file that applies, if there is one."""
    named: Path | None = arguments.project_file
    return named if named is not None else find_project_file(Path.cwd(), Path.home())


def _file_layers(arguments: Arguments) -> list[Layer]:
    file, profile = project_file(arguments), arguments.config_profile
    if file is None and profile is not None:
        raise InvalidRequest(f"--config-profile {profile}: there is no raysm.toml in {Path.cwd()} or above it")
    layers = [] if file is None else Project.read(file).chosen(profile)
    # Commands that only read jobs take none.
    request = getattr(arguments, "request", None)
    return layers if request is None else [*layers, read_request(request)]


def _workload_layer(arguments: Arguments) -> Layer:
    """Return what the command and its own arguments say of the workload."""
    values: dict[Key, object] = {}
    kind = WORKLOADS.get(arguments.command)
    if kind is not None:
        values["workload", "kind"] = kind.kind
    script, matrix = getattr(arguments, "script", None), getattr(arguments, "matrix", None)
    if script is not None:
        values["workload", "script"] = script
    if arguments.script_args:
        values["workload", "args"] = list(arguments.script_args)
    if matrix is not None:
        values["inputs", MATRIX, "uri"] = matrix
    if getattr(arguments, "sharded", False):
        values["inputs", MATRIX, "distribution"] = "ShardedByS3Key"
    if arguments.command == "similarity" and any(
        value is not None for value in (arguments.top_k, arguments.threshold, arguments.full)
    ):
        # Exactly one says what is kept: a flag puts away what a request's file says.
        values |= {("workload", "top_k"): None, ("workload", "threshold"): None, ("workload", "full"): False}
    return Layer(values=values, origin=lambda key: f"raysm {arguments.command}")
