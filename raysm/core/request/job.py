"""A job request: everything that the user asks for, as frozen data."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, get_args

from raysm.core.request.cluster import Cluster, Input, Ports
from raysm.core.request.external import check_index, check_tracking, place_of
from raysm.core.request.limits import Limits, MetricDefinition, Security
from raysm.core.request.options import check_list, decides, optional
from raysm.core.request.workload import Workload
from raysm.errors import InvalidRequest


def hyperparameter_text(name: str, value: Any) -> str:
    """Encode a hyperparameter as text: a string or a path as it is, any other value as JSON.

    In an instance, ``SM_HPS`` and ``SM_HP_NAME`` contain the text parsed as JSON, or the text
    itself if it is not JSON. So ``False``, ``["a"]``, ``None`` and ``0.1`` arrive unchanged, but a
    string that looks like JSON, such as ``"1"`` or ``"true"``, arrives as a number or a truth
    value.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, PurePath):
        return str(value)
    try:
        # json cannot encode the scalars of NumPy and torch, but item() returns a Python number.
        return json.dumps(value, default=lambda item: item.item())
    except (TypeError, ValueError, AttributeError, RuntimeError, RecursionError) as error:
        raise InvalidRequest(
            f"the hyperparameter {name!r} is a {type(value).__name__}, which JSON cannot hold; "
            "give a text, a number, a truth value, None, or lists and dictionaries of these"
        ) from error


AsArguments = Literal[False, True, "sdk2"]
"""Whether hyperparameters are arguments too: spelled as in JSON, or as by the SageMaker SDK 2."""


def hyperparameter_arguments(
    hyperparameters: Mapping[str, str], spelling: AsArguments = True
) -> tuple[str, ...]:
    """Return hyperparameters as command-line arguments: ``--epochs 3``.

    Text stays as it is, and other values are spelled as in JSON: ``true``, ``null``. With ``sdk2``
    they are spelled as in Python (``True``, ``None``, ``a=1,b=2`` of a mapping), a name of one
    letter is ``-n``, and the names are sorted: so the containers of the SageMaker SDK 2 do it.

    A value that begins with ``-`` is joined to its name, ``--shift=-1e-05``, because argparse would
    read it as another option.
    """
    words: list[str] = []
    as_sdk2 = spelling == "sdk2"
    for name in sorted(hyperparameters) if as_sdk2 else hyperparameters:
        text = hyperparameters[name]
        value = _value_of(text)
        if isinstance(value, str):
            word = value
        else:
            word = _in_python(value) if as_sdk2 else text
        flag = f"-{name}" if as_sdk2 and len(name) == 1 else f"--{name}"
        words += [f"{flag}={word}"] if word.startswith("-") else [flag, word]
    return tuple(words)


def _value_of(text: str) -> Any:
    """Return the value whose JSON the text is, or the text if JSON would spell it otherwise."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    # A text in quotes of JSON was quoted to stay a text. "3.10" is no number, whose text is "3.1".
    return value if isinstance(value, str) or json.dumps(value) == text else text


def _in_python(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={item}" for key, item in sorted(value.items()))
    return str(value)


NAME_PATTERN = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
"""CreateTrainingJob's pattern for a job's name."""
CHANNEL_PATTERN = re.compile(r"[A-Za-z0-9.\-_]{1,64}")
"""CreateTrainingJob's pattern for a channel's name; a request also refuses ``.`` and ``..``, which
are folders."""
PROJECT_PATTERN = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._\-]{0,62}")
"""A project is a folder of the bucket."""
RESERVED_TAGS = ("aws:", "raysm:")
"""Prefixes of AWS's tags and of the tags by which raysm finds its jobs."""
GRACE_S = 100.0
"""Default of ``grace_s``: 20 s of SageMaker's 120 s remain to stop Ray and to write the failure
reason."""
SPOT_GRACE_S = 60.0
"""Default of ``grace_s`` on spot capacity, where the machine is lost too: the last files need time
to reach S3, 20 s for 1 to 2 GB. AWS does not document whether it uploads files after SIGKILL."""
PAYLOAD_CHANNEL = "raysm"
"""The channel of the payload; users cannot give a channel this name."""
OWN_PREFIX = "raysm-"
"""Prefix of raysm's other inputs and outputs, whose names share one namespace in a Processing
job."""
JOB_CHANNEL = f"{OWN_PREFIX}job"
"""The channel of a job's own part of the payload, if many jobs share the rest of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRequest:
    """Everything that the user asks for.

    Raises:
        InvalidRequest: A field is out of its range, or the workload lacks a channel.
    """

    name: str = field(
        metadata=decides(
            result=False,
            create=("TrainingJobName", "InputDataConfig", "CheckpointConfig.S3Uri"),
            taken_over=False,
        )
    )
    """The job's name, 1 to 63 letters, digits and inner hyphens."""
    workload: Workload = field(metadata=decides(result=True))
    """The workload that runs on the formed cluster."""
    cluster: Cluster = field(default_factory=Cluster)
    """The instances."""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    """Channels by name."""
    grace_s: float | None = optional(None, result=False)
    """Seconds that user code may run after SIGTERM, at most 120, when SageMaker kills it; None is
    100, or 60 on spot capacity."""
    ports: Ports = field(default_factory=Ports, metadata=decides(result=False))
    """The cluster's ports."""
    # This option is no key of the call; it chooses the call.
    kind: Literal["training", "processing"] = optional("training", result=True)
    """The API that runs the job; Processing has no groups, spot, warm pools, checkpoints or
    metrics."""
    project: str = optional(
        "default",
        result=False,
        create=("InputDataConfig", "OutputDataConfig.S3OutputPath", "CheckpointConfig.S3Uri"),
    )
    """Jobs of one project share their prefix in the bucket, and their state."""
    limits: Limits = field(default_factory=Limits)
    """Time, spot capacity, restarts."""
    security: Security = field(default_factory=Security)
    """Networks, keys, isolation."""
    environment: Mapping[str, str] = field(
        default_factory=dict, metadata=decides(result=True, create="Environment")
    )
    """Environment variables of every instance; never secrets, because DescribeTrainingJob shows
    them."""
    hyperparameters: Mapping[str, str] = field(
        default_factory=dict,
        metadata=decides(result=True, create="HyperParameters", processing_lacks="hyperparameters"),
    )
    """Values that the job reads from ``SM_HPS``, and that the service shows. The service passes
    only texts, so other values travel as JSON; a text that looks like JSON (``"1"``) arrives as a
    number or a truth value."""
    hyperparameters_as_args: AsArguments = optional(False, result=True)
    """True passes the hyperparameters to a script as arguments too, before its own: ``--epochs 3``.
    ``sdk2`` spells them as the SageMaker SDK 2 does: ``True`` and ``None``, ``-n`` for a name of
    one letter, sorted by name."""
    # A follow-up job fetches the tags with ListTags, because Describe does not return them.
    tags: Mapping[str, str] = field(
        default_factory=dict, metadata=decides(result=False, create="Tags")
    )
    """Tags of the job."""
    metrics: tuple[MetricDefinition, ...] = optional(
        (),
        result=False,
        create="AlgorithmSpecification.MetricDefinitions",
        processing_lacks="metric definitions",
    )
    """Metrics that the service finds in the log."""
    stop_on_nan: str | None = optional(None, result=False)
    """A metric: once a value of it is NaN or infinite, the job fails with the step and the rank,
    and user code gets no time to save. None only says in the log which metric became so."""
    requirements: tuple[str, ...] = optional((), result=True)
    """Packages that every instance installs with pip before it joins."""
    # Every index has the same packages.
    pip_index: str | None = optional(None, result=False)
    """The index that pip installs from: an https:// address without a password, or the ARN of a
    CodeArtifact repository, for which the job's role gets a token; None is the image's pip
    configuration, or PyPI."""
    checkpoint_uri: str | None = optional(
        None, result=True, create="CheckpointConfig.S3Uri", processing_lacks="checkpoints"
    )
    """``s3://…`` prefix of the state that survives runs, on this machine ``file:///…`` too; None is
    a prefix made of project and name."""
    # The mirror is a copy of the job's metrics; the result does not depend on it.
    tracking: str | None = optional(None, result=False, create="MlflowConfig")
    """MLflow to copy the metrics to: ``sqlite:///mlflow.db`` on this machine, the address of a
    server that the instances reach, or the ARN of SageMaker's own MLflow; None does not copy
    them."""
    output_uri: str | None = optional(None, result=True, create="OutputDataConfig.S3OutputPath")
    """``s3://…`` prefix of results, on this machine ``file:///…`` too; None is a prefix made of
    project and name."""

    def __post_init__(self) -> None:
        for name in ("metrics", "requirements"):
            object.__setattr__(self, name, check_list("", name, getattr(self, name)))
        texts = {
            name: hyperparameter_text(name, value) for name, value in self.hyperparameters.items()
        }
        object.__setattr__(self, "hyperparameters", texts)
        if self.hyperparameters_as_args not in get_args(AsArguments):
            raise InvalidRequest(
                f"hyperparameters_as_args is {self.hyperparameters_as_args!r}; "
                "it must be False, True or 'sdk2'"
            )
        if self.hyperparameters_as_args and self.workload.entry_script is None:
            raise InvalidRequest(
                f"hyperparameters_as_args: {self.workload.label} is no script, "
                "and takes no arguments; drop it"
            )
        if not NAME_PATTERN.fullmatch(self.name):
            raise InvalidRequest(
                f"the job's name {self.name!r} is not 1 to 63 letters, "
                "digits and inner hyphens; rename it"
            )
        for channel in self.inputs:
            if not CHANNEL_PATTERN.fullmatch(channel) or channel in (".", ".."):
                raise InvalidRequest(
                    f"the channel {channel!r} is not 1-64 letters, digits, '.', '-', "
                    "'_', or is '.' or '..'; rename it"
                )
            if channel == PAYLOAD_CHANNEL or channel.startswith(OWN_PREFIX):
                raise InvalidRequest(
                    f"the channel {channel!r} has a name of raysm's own ({PAYLOAD_CHANNEL!r}, "
                    f"or beginning with {OWN_PREFIX!r}); give yours another name"
                )
        check_channels(self.workload, self.inputs, self.cluster.size)
        self.workload.check_types(self.cluster.types)
        if not PROJECT_PATTERN.fullmatch(self.project):
            raise InvalidRequest(
                f"the project {self.project!r} is not 1-63 letters, digits, '.', '-', "
                "'_', the first a letter or digit"
            )
        for tag in self.tags:
            # AWS reserves its prefix in upper case too.
            if tag.lower().startswith(RESERVED_TAGS):
                raise InvalidRequest(
                    f"the tag {tag!r} begins like those of AWS or raysm; rename it"
                )
        for name in ("checkpoint_uri", "output_uri"):
            uri = getattr(self, name)
            # The plan checks whether the target takes file:///.
            if uri is not None and not uri.startswith(("s3://", "file:///")):
                raise InvalidRequest(
                    f"{name}={uri!r} is not s3://bucket/prefix (here on this machine: file:///path)"
                )
        if self.tracking is not None:
            check_tracking(self.tracking)
            if self.is_tracked_by_head and self.security.isolation:
                raise InvalidRequest(
                    "tracking by the head cannot be reached with "
                    "security.isolation; drop one of the two"
                )
        if self.pip_index is not None:
            check_index(self.pip_index)
            if self.security.isolation:
                raise InvalidRequest(
                    "pip_index cannot be reached with security.isolation; drop one of the two"
                )
        # The service would refuse these too, but only after the upload.
        group_names = [group.name for group in self.cluster.groups]
        for channel, source in self.inputs.items():
            for name in source.groups:
                if name not in group_names:
                    raise InvalidRequest(
                        f"the channel {channel!r} names the instance group {name!r}; the groups "
                        f"are {', '.join(group_names) or 'none: give Cluster(groups=…)'}"
                    )
        without = [channel for channel, source in self.inputs.items() if not source.groups]
        if without and len(without) < len(self.inputs):
            raise InvalidRequest(
                f"the channel {without[0]!r} names no instance groups while others do; "
                "SageMaker takes all or none"
            )
        if self.stop_on_nan is not None and not self.workload.reports_metrics:
            raise InvalidRequest(
                f"stop_on_nan={self.stop_on_nan!r}: "
                f"{self.workload.label} reports no metrics of the job; drop it"
            )
        # "not 0 < x" also refuses NaN, for which every comparison is false.
        if self.grace_s is not None and not 0 < self.grace_s <= 120:
            raise InvalidRequest(
                "grace_s must be above 0 and at most 120, "
                f"which SageMaker gives, got {self.grace_s}"
            )

    @property
    def is_tracked_by_head(self) -> bool:
        """True if the head mirrors the metrics; otherwise the client that follows the job may."""
        return self.tracking is not None and not place_of(self.tracking).is_here

    @property
    def script_args(self) -> tuple[str, ...]:
        """The arguments of the entry script; empty if the workload has no script."""
        script = self.workload.entry_script
        own = () if script is None else script.args
        # The script's own arguments come last, because argparse uses the last of two values.
        spelling = self.hyperparameters_as_args
        return (
            (*hyperparameter_arguments(self.hyperparameters, spelling), *own) if spelling else own
        )

    @property
    def hides_hyperparameters(self) -> bool:
        """True if a script has hyperparameters that its arguments do not show."""
        is_script = self.workload.entry_script is not None
        return is_script and bool(self.hyperparameters) and not self.hyperparameters_as_args

    @property
    def packages(self) -> tuple[str, ...]:
        """Modules that an instance imports besides Ray; pip installs those the image lacks."""
        tracking = place_of(self.tracking).packages if self.tracking is not None else ()
        return (*self.workload.packages, *tracking)

    @property
    def chosen_grace_s(self) -> float:
        """``grace_s``, or its default."""
        if self.grace_s is not None:
            return self.grace_s
        return SPOT_GRACE_S if self.limits.spot else GRACE_S


def check_channels(workload: Workload, inputs: Mapping[str, Input], instances: int) -> None:
    """Check that the inputs are those that a workload needs."""
    for channel in workload.channels:
        if channel not in inputs:
            name = type(workload).__name__
            given = f", got {', '.join(map(repr, inputs))}" if inputs else ""
            raise InvalidRequest(
                f"{name} reads the channel {channel!r}{given}; give inputs={{{channel!r}: …}}"
            )
    workload.check_inputs(inputs, instances)
