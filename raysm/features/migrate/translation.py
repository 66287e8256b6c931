"""From the arguments of the SDK's classes to raysm's options, and what has no equal."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from raysm.features.migrate.python_file import PROCESSORS, TRAININGS, FoundJob, NotConstant, Record

SHARED: Mapping[str, str] = {
    "role": "aws.role",
    "image_uri": "aws.image",
    "instance_type": "cluster.instance_type",
    "instance_count": "cluster.count",
    "base_job_name": "name",
    "output_kms_key": "security.output_kms_key",
    "volume_kms_key": "security.volume_kms_key",
}
OPTIONS: Mapping[str, str] = {
    **SHARED,
    "volume_size": "cluster.volume_gb",
    "keep_alive_period_in_seconds": "cluster.keep_alive_s",
    "training_plan": "cluster.training_plan",
    "max_run": "limits.max_runtime_s",
    "max_wait": "limits.max_wait_s",
    "use_spot_instances": "limits.spot",
    "max_retry_attempts": "limits.retry_attempts",
    "output_path": "output_uri",
    "checkpoint_s3_uri": "checkpoint_uri",
    "environment": "environment",
    "hyperparameters": "hyperparameters",
    "subnets": "security.subnets",
    "security_group_ids": "security.security_groups",
    "encrypt_inter_container_traffic": "security.encrypt_traffic",
    "enable_network_isolation": "security.isolation",
    "enable_remote_debug": "security.remote_debug",
    # Processors.
    "volume_size_in_gb": "cluster.volume_gb",
    "max_runtime_in_seconds": "limits.max_runtime_s",
    "env": "environment",
    "network_config.subnets": "security.subnets",
    "network_config.security_group_ids": "security.security_groups",
    "network_config.enable_network_isolation": "security.isolation",
    "network_config.encrypt_inter_container_traffic": "security.encrypt_traffic",
    # ModelTrainer.
    "training_image": "aws.image",
    "compute.instance_type": "cluster.instance_type",
    "compute.instance_count": "cluster.count",
    "compute.volume_size_in_gb": "cluster.volume_gb",
    "compute.keep_alive_period_in_seconds": "cluster.keep_alive_s",
    "compute.training_plan_arn": "cluster.training_plan",
    "compute.volume_kms_key_id": "security.volume_kms_key",
    "compute.enable_managed_spot_training": "limits.spot",
    "stopping_condition.max_runtime_in_seconds": "limits.max_runtime_s",
    "stopping_condition.max_wait_time_in_seconds": "limits.max_wait_s",
    "output_data_config.s3_output_path": "output_uri",
    "output_data_config.kms_key_id": "security.output_kms_key",
    "checkpoint_config.s3_uri": "checkpoint_uri",
    "networking.subnets": "security.subnets",
    "networking.security_group_ids": "security.security_groups",
    "networking.enable_network_isolation": "security.isolation",
    "networking.enable_inter_container_traffic_encryption": "security.encrypt_traffic",
}
"""raysm's option by the SDK's argument; an argument that is an object has dotted names."""

NEWEST_IMAGE = "AWS's newest PyTorch image is the default; name another one with --image"
SENT = "modules that the script imports are sent; --source-dir sends a folder, --wheel a package"
NO_RULES = "raysm train measures the step itself; raysm scale compares sizes"
REASONS: Mapping[str, str] = {
    "framework_version": NEWEST_IMAGE,
    "pytorch_version": NEWEST_IMAGE,
    "py_version": f"Python 3.11 or later; {NEWEST_IMAGE}",
    "transformers_version": "installed by --requirement; pin it there",
    "dependencies": SENT,
    "git_config": "clone the repository, and name the folder with --source-dir",
    "code_location": "the code is sent below the bucket: --bucket",
    "checkpoint_local_path": "the folder is $RAYSM_STATE",
    "checkpoint_config.local_path": "the folder is $RAYSM_STATE",
    "input_mode": "per input: --set inputs.NAME.mode=FastFile",
    "instance_groups": "--set 'cluster.groups=[…]', Cluster(groups=…) in Python",
    "rules": NO_RULES,
    "debugger_hook_config": NO_RULES,
    "profiler_config": NO_RULES,
    "tensorboard_output_config": "raysm metrics and raysm ui show the metrics",
    "compiler_config": "use torch.compile in the script",
    "compute.instance_groups": "--set 'cluster.groups=[…]', Cluster(groups=…) in Python",
    "source_code.ignore_patterns": "hidden files, caches and virtual environments are never sent",
    "output_data_config.compression_type": "the files of a result are not packed",
    "stopping_condition.max_pending_time_in_seconds": "raysm has no limit for the wait",
    "training_mode": "without --on aws the job runs on this machine",
    "container_log_level": "set the level in the script",
    "experiment_config": "raysm jobs lists the jobs; --tag groups them",
    "command": "Python runs .py and bash runs .sh; another program stands behind --",
    "model_uri": "--input model=URI",
}
IGNORED = (
    "script_mode sagemaker_session session wait logs job_name entry_point source_dir inputs "
    "outputs code arguments distribution distributed distributed_runner metric_definitions "
    "tags input_data_config entrypoint disable_profiler enable_sagemaker_metrics "
    "source_code.source_dir source_code.entry_script source_code.command "
    "source_code.requirements source_code.args local_container_root container_entry_point "
    "container_arguments"
).split()
"""Arguments that are handled by themselves, or that raysm needs not."""


@dataclass(kw_only=True, slots=True)
class Translation:
    title: str
    line: int
    kind: str = "training"
    workload: str = "Script"
    script: Any = ""
    """The script, or the words of a command."""
    is_command: bool = False
    source_dir: Any = None
    args: Any = field(default_factory=list)
    workers: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Fields of ``raysm.Input`` by channel."""
    remarks: list[tuple[str, str]] = field(default_factory=list)
    """Arguments without an equal, each with a reason or a substitute."""
    impossible: str = ""

    @property
    def unknown(self) -> list[tuple[str, NotConstant]]:
        """The values that are not constant, by the option or input that they are for."""
        found: list[tuple[str, NotConstant]] = []

        def search(name: str, value: Any) -> None:
            if isinstance(value, NotConstant):
                found.append((name, value))
            elif isinstance(value, Mapping):
                for key, item in value.items():
                    search(f"{name}.{key}", item)
            elif isinstance(value, list):
                for item in value:
                    search(name, item)

        for name in ("script", "source_dir", "args", "workers", "options", "inputs"):
            search(name, getattr(self, name))
        return [(name.removeprefix("options."), value) for name, value in found]


def translate(job: FoundJob) -> Translation:
    result = Translation(title=job.name, line=job.line)
    arguments = _flat(job.arguments, job.line)
    for each in job.unknown:
        result.remarks.append((each.expression, f"not constant: line {each.line}"))
    if job.name not in (*PROCESSORS, *TRAININGS):
        result.impossible = (
            f"{job.name} runs in an image of its own, and raysm needs Python 3.11 with Ray; "
            "a script can use the framework as a requirement"
        )
    for name, value in arguments.items():
        if name == "output_path" and str(value).startswith("file://"):
            result.options["output"] = _path(value)
        elif name in OPTIONS:
            if value is not None and value is not False:
                result.options[OPTIONS[name]] = value
        elif name not in IGNORED and value is not None:
            result.remarks.append((name, REASONS.get(name, "no equal in raysm")))
    _take_tags_and_metrics(result, arguments)
    if job.name in PROCESSORS:
        _take_processing(result, arguments)
    else:
        _take_training(result, arguments, job)
    instance = str(result.options.get("cluster.instance_type"))
    if instance in ("local", "local_gpu"):
        del result.options["cluster.instance_type"]
        result.remarks.append(("instance_type", f"{instance!r} is the default: this machine"))
    finish(result)
    return result


def finish(result: Translation) -> None:
    """Adapt what raysm takes only in another form."""
    if "cluster.instance_type" not in result.options:
        result.options.pop("aws.role", None)
    if result.kind == "processing" and "hyperparameters" in result.options:
        del result.options["hyperparameters"], result.options["hyperparameters_as_args"]
        result.remarks.append(("hyperparameters", "a Processing job has none: arguments behind --"))
    name = result.options.get("name")
    if isinstance(name, str) and name != task_name(name):
        result.options["name"] = task_name(name)
        result.remarks.append(("name", f"{name!r}: letters, digits and hyphens"))


def _flat(arguments: Mapping[str, Any], line: int) -> dict[str, Any]:
    """Return arguments by name, those of objects with dotted names."""
    flat: dict[str, Any] = {}
    for name, value in arguments.items():
        if not isinstance(value, Record):
            flat[name] = value
        elif name.startswith(("sagemaker_session", "session", "distributed", "inputs")):
            flat[name] = value
        else:
            known = any(key.startswith(f"{name}.") for key in (*OPTIONS, *IGNORED))
            inner = {f"{name}.{key}": item for key, item in value.arguments.items()}
            # A parameter of a pipeline is an object too.
            unknown = NotConstant(expression=f"{value.name}(…)", line=line)
            flat |= inner if known else {name: unknown}
    return flat


def _take_tags_and_metrics(result: Translation, arguments: Mapping[str, Any]) -> None:
    tags = arguments.get("tags")
    pairs = [
        {str(key).lower(): item for key, item in (_fields(tag) or {}).items()}
        for tag in _list(tags)
    ]
    if all("key" in pair and "value" in pair for pair in pairs):
        result.options |= {"tags": {pair["key"]: pair["value"] for pair in pairs}} if pairs else {}
    elif isinstance(tags, Mapping):
        result.options["tags"] = dict(tags)
    elif tags:
        result.remarks.append(("tags", "not constant"))
    metrics = [_fields(each) for each in _list(arguments.get("metric_definitions"))]
    if metrics and all(each and "Name" in each for each in metrics):
        result.options["metrics"] = {each["Name"]: each["Regex"] for each in metrics if each}
    elif arguments.get("metric_definitions"):
        result.remarks.append(("metric_definitions", "not constant"))


def _take_training(result: Translation, arguments: Mapping[str, Any], job: FoundJob) -> None:
    name = job.name
    prefix = "source_code." if name == "ModelTrainer" else ""
    result.script = arguments.get(f"{prefix}{'entry_script' if prefix else 'entry_point'}")
    result.source_dir = arguments.get(f"{prefix}source_dir")
    if str(result.source_dir).startswith(("s3://", "git")):
        result.remarks.append(("source_dir", "download it: the source is sent from this machine"))
    if arguments.get("source_code.requirements"):
        result.remarks.append(("source_code.requirements", "a file in the source folder is used"))
    command = arguments.get("source_code.command") or arguments.get("container_entry_point")
    if command and result.script is None:
        words = command if isinstance(command, list) else ["bash", "-c", command]
        result.script = [*words, *_list(arguments.get("container_arguments"))]
        result.is_command = True
    if result.script is None and job.unknown:
        result.script = job.unknown[0]
    if result.script is None and not result.impossible:
        image = result.options.get("aws.image")
        if name not in ("Estimator", "ModelTrainer"):
            result.impossible = "it has no entry_point"
        elif image is None or re.search(r"retrieve\(|get_image_uri\(", str(image)):
            result.impossible = "built-in algorithms run only in SageMaker's own images"
        else:
            result.script = ["train"]
            result.is_command = True
            result.remarks.append(
                ("entry_point", "the image's program train runs; the image needs Python 3.11")
            )
    packages = {"SKLearn": "scikit-learn", "HuggingFace": "transformers"}
    if name in packages:
        result.options["requirements"] = [packages[name]]
    if "hyperparameters" in result.options:
        result.options["hyperparameters_as_args"] = True if prefix else "sdk2"
    launchers = ("distribution", "distributed", "distributed_runner")
    _take_distribution(result, next(filter(None, map(arguments.get, launchers)), None))
    data = arguments.get("inputs", arguments.get("input_data_config"))
    if isinstance(data, Mapping):
        for channel, item in data.items():
            _take_channel(result, str(channel), item)
    elif data is not None and not isinstance(data, list):
        _take_channel(result, "training", data)
    for item in data if isinstance(data, list) else ():
        fields = _fields(item) or {}
        _take_channel(
            result, str(fields.get("channel_name", "training")), fields.get("data_source")
        )


def _take_channel(result: Translation, channel: str, item: Any) -> None:
    fields = _fields(item)
    if fields is None:
        result.inputs[channel] = {"uri": _path(item)}
        return
    if "file_system_id" in fields:
        scheme = "efs" if fields.get("file_system_type") == "EFS" else "fsx"
        path = fields.get("directory_path", "")
        result.inputs[channel] = {"uri": f"{scheme}://{fields['file_system_id']}{path}"}
        return
    mode = fields.get("input_mode")
    if mode == "Pipe":
        result.remarks.append(
            (f"input {channel}: input_mode", "'Pipe': FastFile streams plain files")
        )
    names = {"distribution": "s3_data_distribution_type"}
    chosen = {
        "uri": _path(fields.get("s3_data", fields.get("s3_uri"))),
        "distribution": fields.get("distribution", fields.get(names["distribution"])),
        "content_type": fields.get("content_type"),
        "mode": {"Pipe": "FastFile", "FastFile": "FastFile"}.get(str(mode)),
        "manifest": fields.get("s3_data_type") == "ManifestFile" or None,
    }
    if chosen["distribution"] == "FullyReplicated":
        chosen["distribution"] = None
    result.inputs[channel] = {key: value for key, value in chosen.items() if value is not None}


def _take_distribution(result: Translation, value: Any) -> None:
    if value is None:
        count = result.options.get("cluster.count", 1)
        if isinstance(count, int) and count > 1:
            result.remarks.append(
                ("instance_count", "there every instance runs the script; here the head does")
            )
        return
    if isinstance(value, Record):
        kinds = {value.name.lower(): dict(value.arguments)}
    elif isinstance(value, Mapping):
        kinds = {str(key): dict(_fields(item) or {}) for key, item in value.items()}
    else:
        result.remarks.append(
            ("distribution", "not constant: raysm train runs scripts for torchrun")
        )
        return
    for name, fields in kinds.items():
        if name in ("torch_distributed", "pytorchddp", "torchrun", "mpi", "smdistributed"):
            result.workload = "TorchScript"
            result.workers = fields.get("processes_per_host", fields.get("process_count_per_node"))
        if name == "mpi":
            result.remarks.append(("mpi", "the script reads RANK and WORLD_SIZE, as of torchrun"))
        elif name == "smdistributed":
            result.remarks.append((name, "see docs/guides/come-from-smdistributed.md"))
        elif result.workload == "Script":
            result.remarks.append((name, "raysm has only torchrun's processes: raysm train"))


def _take_processing(result: Translation, arguments: Mapping[str, Any]) -> None:
    result.kind = "processing"
    result.script = arguments.get("code")
    result.source_dir = arguments.get("source_dir")
    result.args = arguments.get("arguments") or []
    entry = arguments.get("entrypoint")
    if result.script is None and entry is not None:
        result.script = _list(entry)
        result.is_command = True
    elif result.script is None:
        result.impossible = result.impossible or "it runs the image's own program: name it after --"
    command = arguments.get("command")
    plain = (["python3"], ["python"], None)
    result.remarks = [
        each for each in result.remarks if each[0] != "command" or command not in plain
    ]
    for item in _list(arguments.get("inputs")):
        fields = _fields(item)
        if fields is None:
            result.remarks.append(("inputs", "not constant"))
            continue
        folder = fields.get("destination", "")
        last = PurePosixPath(folder).name if isinstance(folder, str) else ""
        name = str(fields.get("input_name") or last or "input")
        _take_channel(
            result, name, Record(name="", arguments={**fields, "s3_data": fields.get("source")})
        )
        if folder != f"/opt/ml/processing/input/{name}":
            result.remarks.append(
                (f"input {name}: destination", f"read $SM_CHANNEL_{name.upper()}")
            )
    for number, item in enumerate(_list(arguments.get("outputs"))):
        fields = _fields(item) or {}
        name = f"output {fields.get('output_name', number + 1)}: source"
        folder = ("$SM_MODEL_DIR", "$SM_OUTPUT_DATA_DIR")[number] if number < 2 else ""
        result.remarks.append((name, f"write into {folder}" if folder else "raysm has two outputs"))
        uri = fields.get("destination")
        if number == 0 and isinstance(uri, str) and not uri.startswith("s3://"):
            result.options["output"] = _path(uri)
        elif number == 0 and uri is not None:
            result.options["output_uri"] = uri


def _path(uri: Any) -> Any:
    return uri.removeprefix("file://") if isinstance(uri, str) else uri


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _fields(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, Record):
        return value.arguments
    return value if isinstance(value, Mapping) else None


def task_name(text: str) -> str:
    """Return a name that a task of raysm can have."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text).strip("-")[:40] or "job"
