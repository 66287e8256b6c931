"""SageMaker's operations on jobs.

Each API has the same operations under its own names; ``definitions`` has what differs between the
APIs. The functions at the end make the answers of List and Describe: filters, pages, tags, and the
fields of botocore's model of the answer.
"""

import base64
import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar

from raysm.core.protocol.job_api import APIS, TRAINING, JobApi
from raysm.core.protocol.names import INSTANCE_KIND_TAG
from raysm.core.protocol.service_model import service_model
from raysm.core.request.targets import instance_kind
from raysm.local.instances import Instance, missing_for
from raysm.local.server.definitions import choose_kind, request_module
from raysm.local.server.job_status import JobLife
from raysm.local.server.moto_services import ACCOUNT
from raysm.local.server.records import JobRecord, Transition
from raysm.local.server.run import JobRun
from raysm.local.server.services import Services
from raysm.local.server.simulated import SimulatedLife
from raysm.local.server.validation import ApiError, check, check_rules, validation

Operation: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any]]

MAX_TAGS = 50
STATUS = "StatusEquals"
PAGE = 10
SWITCHES = (
    "EnableNetworkIsolation",
    "EnableInterContainerTrafficEncryption",
    "EnableManagedSpotTraining",
)
"""Fields that Describe reports even if the request has none."""


class Operations:
    def __init__(self, services: Services, default_kind: str) -> None:
        self._services = services
        self._records = services.records
        self._default_kind = default_kind
        self._runs: dict[tuple[str, JobApi, str], JobLife] = {}
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {
            "AddTags": lambda request, _: self._add_tags(request),
            "ListTags": lambda request, _: self._list_tags(request),
            "DeleteTags": lambda request, _: self._delete_tags(request),
            "CreateHyperParameterTuningJob": lambda request, region: _refuse(
                # moto would accept the tuning job and never run it.
                "CreateHyperParameterTuningJob",
                "run the sweep as one job (raysm sweep, or raysm.submit), or tune on AWS",
            ),
            # moto would find none of these jobs.
            "Search": lambda request, region: _refuse("Search", "use ListTrainingJobs"),
        }
        for api in APIS:
            self._operations |= self._operations_of(api)

    def _operations_of(self, api: JobApi) -> dict[str, Operation]:
        operations: dict[str, Operation] = {
            api.create: partial(self._create, api),
            api.describe: lambda request, region: describe(
                self._records.get(api, request[api.name_key], region)
            ),
            api.stop: lambda request, region: self._stop(api, request[api.name_key], region),
            api.list: lambda request, region: self._list(api, request, region),
            api.delete: lambda request, region: self._delete(api, request[api.name_key], region),
        }
        if api.update is not None:
            operations[api.update] = lambda request, region: self._update(api, request, region)
        return operations

    def has(self, operation: str, request: Mapping[str, Any]) -> bool:
        arn = request.get("ResourceArn")
        # The request is not checked yet, so this may be anything.
        is_ours = not isinstance(arn, str) or any(f"{api.arn_part}/" in arn for api in APIS)
        return operation in self._operations and is_ours

    def answer(self, operation: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        check(operation, request)
        return self._operations[operation](request, region)

    def interrupt(self, name: str) -> None:
        """Interrupt the training job ``name``, in whatever region it runs.

        Raise ApiError if it does not run.
        """
        with self._lock:
            runs = [
                run for (_, api, mine), run in self._runs.items() if (api, mine) == (TRAINING, name)
            ]
        running = [run for run in runs if not run.record.final]
        if not running:
            record = runs[0].record if runs else self._records.get(TRAINING, name)
            raise ApiError(
                "ValidationException", f"the job {name} does not run: it is {record.status}", 409
            )
        for run in running:
            run.interrupt()

    def instances(self, name: str, region: str) -> Mapping[str, Instance]:
        run = self._runs.get((region, TRAINING, name))
        return {} if run is None else run.instances

    def await_end(self, name: str, region: str, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` until a job of this server has ended; return whether it has."""
        run = self._unfinished(name, region)
        return run is None or run.await_end(timeout_s)

    def await_change(self, name: str, region: str, seen: int, timeout_s: float) -> int | None:
        """Wait until a job's count of changes differs from ``seen``.

        Return it, or None once the job has ended.
        """
        run = self._unfinished(name, region)
        return None if run is None else run.await_change(seen, timeout_s)

    def _unfinished(self, name: str, region: str) -> JobLife | None:
        # Jobs of different APIs may have the same name.
        with self._lock:
            runs = [
                run
                for (where, _, mine), run in self._runs.items()
                if (where, mine) == (region, name)
            ]
        unfinished = [run for run in runs if not run.await_end(0)]
        if not runs or len(unfinished) > 1:
            raise ApiError(
                "ValidationException",
                f"this server runs no job {name}, or several of different kinds",
                409,
            )
        return unfinished[0] if unfinished else None

    def running(self) -> list[str]:
        with self._lock:
            return [name for (_, _, name), run in self._runs.items() if run.running]

    def unfinished(self) -> list[str]:
        with self._lock:
            return [name for (_, _, name), run in self._runs.items() if not run.await_end(0)]

    def shut_down(self) -> None:
        with self._lock:
            runs = list(self._runs.values())
        # In parallel, because each may take a while.
        threads = [threading.Thread(target=run.shut_down) for run in runs if run.running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _create(self, api: JobApi, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        parameters = {
            name: value for name, value in request.items() if name != "Tags" and value is not None
        }
        tags = parse_tags(request.get("Tags") or [])
        check_rules(api, request)
        request_module(api).check(parameters)
        image = request_module(api).image(parameters)
        kind = choose_kind(image, tags, self._default_kind)
        if not request_module(api).command(parameters)[0] and not instance_kind(kind).needs_image:
            raise validation(
                f"the embedded SageMaker does not know the entry point of the image {image!r}: "
                "give ContainerEntrypoint, or run the image itself: the tag "
                f"{INSTANCE_KIND_TAG}=docker"
            )
        missing = missing_for(kind)
        if missing:
            raise validation(missing)
        speed = self._records.clock.speed
        if speed != 1.0 and not instance_kind(kind).keeps_any_time:
            raise validation(
                f"instances of the kind {kind} run in this machine's time, and the scenario has "
                f"speed = {speed:g}: use simulated instances, or remove speed from the scenario"
            )
        if parameters.get("MlflowConfig"):
            raise validation(
                "MlflowConfig: the embedded SageMaker does not emulate managed MLflow; leave it "
                "out, and copy metrics into a file or an MLflow server: "
                "tracking='sqlite:///mlflow.db' or 'http://…'"
            )
        self._services.stock.check_quota(api, parameters, region)
        name = parameters[api.name_key]
        now = self._records.clock.now()
        record = JobRecord(
            kind=api.kind,
            name=name,
            arn=api.arn(region=region, account=ACCOUNT, name=name),
            region=region,
            request=parameters,
            instance_kind=kind,
            tags=tags,
            spot_saving=self._services.stock.spot_saving(parameters, region),
            created_s=now,
            modified_s=now,
            transitions=(
                Transition(status="Starting", start_s=now, message=f"Starting the {api.kind} job"),
            ),
        )
        self._records.add(record)
        try:
            runs_programs = instance_kind(kind).runs_programs
            run = (
                JobRun(self._services, record)
                if runs_programs
                else SimulatedLife(self._services, record)
            )
            with self._lock:
                self._runs[region, api, name] = run
            run.start()
        except BaseException:
            # For example if no thread can be started. The client may repeat the request.
            with self._lock:
                self._runs.pop((region, api, name), None)
            self._records.delete(api, name, region)
            raise
        return {api.arn_key: record.arn}

    def _stop(self, api: JobApi, name: str, region: str) -> Mapping[str, Any]:
        record = self._records.get(api, name, region)
        run = self._runs.get((region, api, name))
        # A job of an earlier server ended with it.
        if run is None:
            raise validation(
                f"The request was rejected because the {api.kind} job is in status {record.status}."
            )
        run.stop()
        return {}

    def _update(self, api: JobApi, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.get(api, request[api.name_key], region)
            # Only the warm pool of a job that has ended can be updated.
            if record.final and set(request) - {api.name_key, "ResourceConfig"}:
                raise validation(f"The {api.kind} job cannot be updated in status {record.status}.")
            changed = dict(record.request)
            for part in ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig"):
                if request.get(part) is not None:
                    changed[part] = request[part]
            if request.get("ResourceConfig"):
                # An update contains only KeepAlivePeriodInSeconds.
                changed["ResourceConfig"] = {
                    **changed["ResourceConfig"],
                    **request["ResourceConfig"],
                }
            record = self._records.update(api, record.name, region, request=changed)
        return {api.arn_key: record.arn}

    def _delete(self, api: JobApi, name: str, region: str) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.get(api, name, region)
            if not record.final:
                raise ApiError(
                    "ResourceInUse",
                    f"The {api.kind} job {name} is in status {record.status}; stop it first",
                )
            self._records.delete(api, name, region)
        with self._lock:
            self._runs.pop((region, api, name), None)
        return {}

    def _list(self, api: JobApi, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        late = request if api.filters_status_late and request.get("MaxResults") else {}
        early = {name: value for name, value in request.items() if not late or name != STATUS}
        records = [record for record in self._records.all(api, region) if matches(record, early)]
        by = request.get("SortBy", "CreationTime")
        keys: dict[str, Callable[[JobRecord], Any]] = {
            "Name": lambda record: record.name,
            "CreationTime": lambda record: record.created_s,
            "Status": lambda record: record.status,
        }
        key = keys.get(by, keys["CreationTime"])
        is_descending = request.get("SortOrder") != "Ascending"

        def position(record: JobRecord) -> list[Any]:
            # By name too, so that jobs with equal keys keep their order from page to page.
            return [key(record), record.name]

        records.sort(key=position, reverse=is_descending)
        page, more = paginate(records, request, position, is_descending=is_descending)
        # As on AWS: the status filters the page, which may be empty and not the last.
        matching = [record for record in page if late.get(STATUS) in (None, record.status)]
        return {api.summaries_key: [summarize(record) for record in matching], **more}

    def _add_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.by_arn(request["ResourceArn"])
            tags = {**record.tags, **parse_tags(request["Tags"])}
            if len(tags) > MAX_TAGS:
                raise ApiError(
                    "ResourceLimitExceeded",
                    f"A resource has at most {MAX_TAGS} tags, this is {len(tags)}",
                )
            self._records.update(record.api, record.name, record.region, tags=tags)
        return {"Tags": to_tag_list(tags)}

    def _list_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = self._records.by_arn(request["ResourceArn"])
        tags = sorted(to_tag_list(record.tags), key=lambda tag: tag["Key"])
        page, more = paginate(tags, {"MaxResults": MAX_TAGS, **request}, lambda tag: [tag["Key"]])
        return {"Tags": page, **more}

    def _delete_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.by_arn(request["ResourceArn"])
            tags = {
                key: value for key, value in record.tags.items() if key not in request["TagKeys"]
            }
            self._records.update(record.api, record.name, record.region, tags=tags)
        return {}


def _refuse(what: str, remedy: str) -> Mapping[str, Any]:
    raise ApiError(
        "NotImplementedException", f"the embedded SageMaker does not emulate {what}; {remedy}"
    )


Item = TypeVar("Item")


def matches(record: JobRecord, request: Mapping[str, Any]) -> bool:
    tests: dict[str, Callable[[Any], bool]] = {
        "CreationTimeAfter": lambda at: record.created_s >= at,
        "CreationTimeBefore": lambda at: record.created_s <= at,
        "LastModifiedTimeAfter": lambda at: record.modified_s >= at,
        "LastModifiedTimeBefore": lambda at: record.modified_s <= at,
        "NameContains": lambda part: part.lower() in record.name.lower(),
        STATUS: lambda status: record.status == status,
        # Warm pools are not emulated.
        "WarmPoolStatusEquals": lambda status: False,
        "TrainingPlanArnEquals": lambda arn: (
            record.request["ResourceConfig"].get("TrainingPlanArn") == arn
        ),
    }
    return all(test(request[name]) for name, test in tests.items() if request.get(name) is not None)


def paginate(
    items: list[Item],
    request: Mapping[str, Any],
    position: Callable[[Item], list[Any]],
    *,
    is_descending: bool = False,
) -> tuple[list[Item], dict[str, str]]:
    """Return one page, and the token of the next one.

    The token has the position of the last item, so that neither new items nor one that no longer
    passes the filter shift the next page.

    Args:
        items: All items, in the order of their positions.
        request: Its ``NextToken`` and ``MaxResults`` are read.
        position: Returns what an item is sorted by, as JSON can hold it; no two items have the
            same.
        is_descending: The items are in descending order.

    Raises:
        ApiError: The token is not one of this function.
    """
    rest = items
    if token := request.get("NextToken"):
        try:
            last = json.loads(base64.urlsafe_b64decode(token))["after"]
            if is_descending:
                rest = [item for item in items if position(item) < last]
            else:
                rest = [item for item in items if position(item) > last]
        except (ValueError, KeyError, TypeError):
            raise validation("Invalid NextToken") from None
    count = int(request.get("MaxResults") or PAGE)
    page = rest[:count]
    if count >= len(rest):
        return page, {}
    after = json.dumps({"after": position(page[-1])})
    return page, {"NextToken": base64.urlsafe_b64encode(after.encode()).decode()}


def parse_tags(tags: list[Mapping[str, str]]) -> dict[str, str]:
    """Return tags by their keys; raise ApiError for two tags with the same key."""
    by_key = {tag["Key"]: tag["Value"] for tag in tags}
    if len(by_key) != len(tags):
        raise validation("Tags: duplicate tag keys are not allowed")
    return by_key


def to_tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def describe(record: JobRecord) -> Mapping[str, Any]:
    shape = service_model().operation_model(record.api.describe).output_shape
    seconds = billed_s = None
    if record.final and record.training_s:
        # AWS bills at least one second.
        seconds, billed_s = (
            max(1, round(record.training_s * share)) for share in (1.0, 1.0 - record.spot_saving)
        )
    values = {
        **{switch: False for switch in SWITCHES},
        **record.request,
        **_state(record),
        record.api.start_time_key: record.started_s,
        "ModelArtifacts": {"S3ModelArtifacts": record.artifacts} if record.artifacts else None,
        "SecondaryStatusTransitions": [_transition(item) for item in record.transitions],
        "FinalMetricDataList": list(record.metrics) or None,
        "TrainingTimeInSeconds": seconds,
        "BillableTimeInSeconds": billed_s,
    }
    return _of_shape(values, shape.members)


def summarize(record: JobRecord) -> Mapping[str, Any]:
    return _of_shape(_state(record), service_model().shape_for(record.api.summary_shape).members)


def _state(record: JobRecord) -> dict[str, Any]:
    api = record.api
    return {
        api.name_key: record.name,
        api.arn_key: record.arn,
        api.status_key: record.status,
        "SecondaryStatus": record.secondary,
        "FailureReason": record.failure_reason,
        "ExitMessage": record.exit_message,
        "CreationTime": record.created_s,
        api.end_time_key: record.ended_s,
        "LastModifiedTime": record.modified_s,
    }


def _of_shape(values: Mapping[str, Any], members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and name in members}


def _transition(item: Transition) -> dict[str, Any]:
    parts = {
        "Status": item.status,
        "StartTime": item.start_s,
        "EndTime": item.end_s,
        "StatusMessage": item.message,
    }
    return {key: value for key, value in parts.items() if value is not None}
