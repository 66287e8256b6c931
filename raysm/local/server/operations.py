"""SageMaker's operations on jobs.

Each API has the same operations under its own names. ``served_apis`` says what differs between the APIs.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from raysm.contract.job_api import APIS, TRAINING, JobApi
from raysm.contract.names import LOCAL_REGION
from raysm.local.instances import Instance, missing_for
from raysm.local.server import search
from raysm.local.server.answers import STATUS, describe, listed, matches, page_of, summarize, tags_of
from raysm.local.server.definitions import kind_of
from raysm.local.server.moto_internals import ACCOUNT
from raysm.local.server.records import JobRecord, Transition
from raysm.local.server.run import JobRun
from raysm.local.server.served_apis import served
from raysm.local.server.services import JobLife, Services
from raysm.local.server.simulated import SimulatedLife
from raysm.local.server.validation import ApiError, check, check_rules, validation
from raysm.request.targets import instance_kind

__all__ = ["Operations"]

Operation: TypeAlias = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""Answers a request that was sent to a region."""

MAX_TAGS = 50


class Operations:
    """All operations on jobs, and the jobs that run."""

    def __init__(self, services: Services, default_kind: str) -> None:
        """Serve ``services``; a job that does not say what its instances are gets ``default_kind``."""
        self._services = services
        self._records = services.records
        self._default_kind = default_kind
        self._runs: dict[tuple[str, JobApi, str], JobLife] = {}
        self._lock = threading.Lock()
        self._operations: dict[str, Operation] = {
            "AddTags": lambda request, _: self._add_tags(request),
            "ListTags": lambda request, _: self._list_tags(request),
            "DeleteTags": lambda request, _: self._delete_tags(request),
            "CreateHyperParameterTuningJob": lambda request, region: _refuse_tuning(),
            "Search": lambda request, region: search.search(self._records.all(TRAINING, region), request),
        }
        for api in APIS:
            self._operations |= self._operations_of(api)

    def _operations_of(self, api: JobApi) -> dict[str, Operation]:
        operations: dict[str, Operation] = {
            api.create: partial(self._create, api),
            api.describe: lambda request, region: describe(self._records.get(api, request[api.name_key], region)),
            api.stop: lambda request, region: self._stop(api, request[api.name_key], region),
            api.list: lambda request, region: self._list(api, request, region),
            api.delete: lambda request, region: self._delete(api, request[api.name_key], region),
        }
        if api.update is not None:
            operations[api.update] = lambda request, region: self._update(api, request, region)
        return operations

    def has(self, operation: str, request: Mapping[str, Any]) -> bool:
        """Whether ``operation`` is ours; tags of other things than jobs are not, nor is a search for them."""
        if operation == "Search":
            return search.is_ours(request)
        arn = request.get("ResourceArn")
        # Asked before the request is checked: there may be anything here.
        if arn is not None and isinstance(arn, str):
            return operation in self._operations and any(f"{api.arn_part}/" in arn for api in APIS)
        return operation in self._operations

    def answer(self, operation: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Carry ``operation`` out.

        Raises:
            ApiError: It is refused.
        """
        check(operation, request)
        return self._operations[operation](request, region)

    def run(self, name: str, region: str | None = None) -> JobLife:
        """Return the run of the training job ``name``; of a name alone, the one that runs.

        Raises:
            ApiError: There is no such job, it does not run, or jobs of the name run in several regions.
        """
        with self._lock:
            runs = {where: run for (where, api, mine), run in self._runs.items() if (api, mine) == (TRAINING, name)}
        running = [where for where, run in runs.items() if region in (None, where) and not run.record.final]
        if len(running) > 1:
            raise ApiError(
                "ValidationException", f"jobs {name} run in {', '.join(sorted(running))}: name the region too", 409
            )
        if not running:
            regions = [where for where in runs if region in (None, where)]
            record = self._records.get(TRAINING, name, regions[0] if regions else region or LOCAL_REGION)
            raise ApiError("ValidationException", f"the job {name} does not run: it is {record.status}", 409)
        return runs[running[0]]

    def instances(self, name: str, region: str) -> Mapping[str, Instance]:
        """Return the instances of the training job ``name`` by host; none of one that does not run here."""
        run = self._runs.get((region, TRAINING, name))
        return {} if run is None else run.instances

    def await_end(self, name: str, region: str, timeout_s: float) -> bool:
        """Wait until a job that this server runs has ended, at most so long; return whether it has.

        Raises:
            ApiError: This server knows no such job, or several of different kinds that run.
        """
        run = self._unfinished(name, region)
        return run is None or run.await_end(timeout_s)

    def await_change(self, name: str, region: str, seen: int, timeout_s: float) -> int | None:
        """Wait for another line or status of a job than the ``seen``-th, at most so long; return how many there are.

        Returns:
            None of a job that has ended: nothing changes any more.

        Raises:
            ApiError: This server knows no such job, or several of different kinds that run.
        """
        run = self._unfinished(name, region)
        return None if run is None else run.await_change(seen, timeout_s)

    def _unfinished(self, name: str, region: str) -> JobLife | None:
        # A name is one job's only within its API: who asks does not say which.
        with self._lock:
            runs = [run for (where, _, mine), run in self._runs.items() if (where, mine) == (region, name)]
        unfinished = [run for run in runs if not run.await_end(0)]
        # Refused: a no would say that the one job goes on, and be asked again.
        if not runs or len(unfinished) > 1:
            raise ApiError("ValidationException", f"it is not clear which job {name} is, or whether it runs", 409)
        return unfinished[0] if unfinished else None

    def running(self) -> list[str]:
        """Return the names of the jobs that something is still done for; of some the record is final already."""
        with self._lock:
            return [name for (_, _, name), run in self._runs.items() if run.running]

    def unfinished(self) -> list[str]:
        """Return the names of the jobs whose record is not final: a job that is said to be Completed is none."""
        with self._lock:
            return [name for (_, _, name), run in self._runs.items() if not run.await_end(0)]

    def shut_down(self) -> None:
        """End all jobs at once."""
        with self._lock:
            runs = list(self._runs.values())
        # Side by side: else the server would take as long to end as all its jobs in a row.
        threads = [threading.Thread(target=run.shut_down) for run in runs if run.running]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _create(self, api: JobApi, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        parameters = {name: value for name, value in request.items() if name != "Tags" and value is not None}
        tags = tags_of(request.get("Tags") or [])
        check_rules(api, request)
        served(api).check(parameters)
        kind = kind_of(served(api).image(parameters), tags, self._default_kind)
        # Before there is a job: what this machine cannot play is a refused request, not a job that fails.
        missing = missing_for(kind)
        if missing:
            raise validation(missing)
        self._check_clock(kind)
        if parameters.get("MlflowConfig"):
            raise validation(
                "MlflowConfig: the embedded SageMaker does not emulate managed MLflow; leave it out, and copy metrics "
                "into a file or an MLflow server: tracking='sqlite:///mlflow.db' or 'http://…'"
            )
        # Before its name is taken: a refused request leaves nothing.
        self._services.stock.check_quota(api, parameters, region)
        name, now = parameters[api.name_key], self._records.clock.now()
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
            transitions=(Transition(status="Starting", start_s=now, message=f"Starting the {api.kind} job"),),
        )
        # Here it is decided who has the name, under the records' lock: nothing was looked up before.
        self._records.add(record)
        try:
            run = self._life_of(record)
            with self._lock:
                self._runs[region, api, name] = run
            run.start()
        except BaseException:
            # As where there are threads enough no more: it was refused then, and may be asked for again.
            with self._lock:
                self._runs.pop((region, api, name), None)
            self._records.delete(api, name, region)
            raise
        return {api.arn_key: record.arn}

    def _life_of(self, record: JobRecord) -> JobLife:
        is_real = instance_kind(record.instance_kind).runs_programs
        return JobRun(self._services, record) if is_real else SimulatedLife(self._services, record)

    def _check_clock(self, kind: str) -> None:
        """Refuse what really runs where the time passes faster than this machine's.

        Raises:
            ApiError: Its limits, and what it is billed, would be of another time than its work.
        """
        speed = self._records.clock.speed
        if speed != 1.0 and not instance_kind(kind).keeps_any_time:
            raise validation(
                f"instances of the kind {kind} run in this machine's time, and the scenario has speed = {speed:g}: "
                "take simulated ones, or the switch out of the scenario"
            )

    def _stop(self, api: JobApi, name: str, region: str) -> Mapping[str, Any]:
        record = self._records.get(api, name, region)
        run = self._runs.get((region, api, name))
        # Of an earlier server: it ended with that one, or was said to have when this one started.
        if run is None:
            raise validation(f"The request was rejected because the {api.kind} job is in status {record.status}.")
        run.stop()
        return {}

    def _update(self, api: JobApi, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.get(api, request[api.name_key], region)
            # Of a job that has ended, its warm pool alone: to end it, or keep it for longer.
            if record.final and set(request) - {api.name_key, "ResourceConfig"}:
                raise validation(f"The {api.kind} job cannot be updated in status {record.status}.")
            changed = dict(record.request)
            for part in ("ProfilerConfig", "ProfilerRuleConfigurations", "RemoteDebugConfig"):
                if request.get(part) is not None:
                    changed[part] = request[part]
            if request.get("ResourceConfig"):
                # An update names only what changes, KeepAlivePeriodInSeconds.
                changed["ResourceConfig"] = {**changed["ResourceConfig"], **request["ResourceConfig"]}
            record = self._records.update(api, record.name, region, request=changed)
        self._services.pools.update(record)
        return {api.arn_key: record.arn}

    def _delete(self, api: JobApi, name: str, region: str) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.get(api, name, region)
            if not record.final:
                raise ApiError(
                    "ResourceInUse", f"The {api.kind} job {name} is in status {record.status}; stop it first"
                )
            self._records.delete(api, name, region)
        with self._lock:
            self._runs.pop((region, api, name), None)
        return {}

    def _list(self, api: JobApi, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        late = request if api.filters_status_late and request.get("MaxResults") else {}
        early = {name: value for name, value in request.items() if not late or name != STATUS}
        records = [record for record in self._records.all(api, region) if _matches(record, early)]
        by = request.get("SortBy", "CreationTime")
        keys: dict[str, Callable[[JobRecord], Any]] = {
            "Name": lambda record: record.name,
            "CreationTime": lambda record: record.created_s,
            "Status": lambda record: record.status,
        }
        key = keys.get(by, keys["CreationTime"])
        # By the name too: jobs of one status or moment must not change places between two pages.
        records.sort(key=lambda record: (key(record), record.name), reverse=request.get("SortOrder") != "Ascending")
        page, more = page_of(records, request, lambda record: record.name)
        # As AWS: the page is taken first, so that it may be empty and yet not the last.
        matching = [record for record in page if late.get(STATUS) in (None, record.status)]
        return {api.summaries_key: [summarize(record) for record in matching], **more}

    def _add_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.by_arn(request["ResourceArn"])
            tags = {**record.tags, **tags_of(request["Tags"])}
            if len(tags) > MAX_TAGS:
                raise ApiError("ResourceLimitExceeded", f"A resource has at most {MAX_TAGS} tags, this is {len(tags)}")
            self._records.update(record.api, record.name, record.region, tags=tags)
        return {"Tags": listed(tags)}

    def _list_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        record = self._records.by_arn(request["ResourceArn"])
        page, more = page_of(listed(record.tags), {"MaxResults": MAX_TAGS, **request}, lambda tag: str(tag["Key"]))
        return {"Tags": page, **more}

    def _delete_tags(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._records.held():
            record = self._records.by_arn(request["ResourceArn"])
            tags = {key: value for key, value in record.tags.items() if key not in request["TagKeys"]}
            self._records.update(record.api, record.name, record.region, tags=tags)
        return {}


def _refuse_tuning() -> Mapping[str, Any]:
    # moto would accept the tuning job, which would then stay InProgress without a trial.
    raise ApiError(
        "NotImplementedException",
        "the embedded SageMaker does not emulate CreateHyperParameterTuningJob; run the sweep as one job "
        "(raysm sweep, or raysm.submit), or tune on AWS",
    )


def _matches(record: JobRecord, request: Mapping[str, Any]) -> bool:
    tests: dict[str, Callable[[Any], bool]] = {
        "WarmPoolStatusEquals": lambda status: (record.warm_pool or {}).get("Status") == status,
        "TrainingPlanArnEquals": lambda arn: record.request["ResourceConfig"].get("TrainingPlanArn") == arn,
    }
    is_match = all(test(request[name]) for name, test in tests.items() if request.get(name) is not None)
    return is_match and matches(record, request)
