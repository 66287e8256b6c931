"""SageMaker's operations on tuning jobs: what flows in is a request, what flows out is its answer."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from raysm.local.server.api_error import ApiError, validation
from raysm.local.server.listing import listed, matches, page_of, tags_of
from raysm.local.server.moto_internals import ACCOUNT
from raysm.local.server.operations import Operations
from raysm.local.server.records import JobRecord
from raysm.local.server.tuning import answers
from raysm.local.server.tuning.definition import check_definitions, definitions_of
from raysm.local.server.tuning.records import Child, TuningRecord, TuningRecords
from raysm.local.server.tuning.run import TuningRun
from raysm.local.server.tuning.trial import Objective, Trial
from raysm.local.server.validation import check

__all__ = ["TuningOperations"]

NAME = "HyperParameterTuningJobName"
ARN_PART = ":hyper-parameter-tuning-job/"
SAME = "IdenticalDataAndAlgorithm"
"""The WarmStartType whose best training job may be a parent's."""


class TuningOperations:
    """All operations on tuning jobs, and the tuning jobs that run."""

    def __init__(self, records: TuningRecords, jobs: Operations) -> None:
        """Launch training jobs by ``jobs``."""
        self._records, self._jobs = records, jobs
        self._runs: dict[tuple[str, str], TuningRun] = {}
        self._lock = threading.Lock()
        self._operations: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, Any]]] = {
            "CreateHyperParameterTuningJob": self._create,
            "DescribeHyperParameterTuningJob": lambda request, region: self._describe(self._record(request, region)),
            "StopHyperParameterTuningJob": self._stop,
            "ListHyperParameterTuningJobs": self._list,
            "DeleteHyperParameterTuningJob": self._delete,
            "ListTrainingJobsForHyperParameterTuningJob": self._list_children,
            "AddTags": lambda request, region: self._tag(request, tags_of(request["Tags"]), ()),
            "DeleteTags": lambda request, region: self._tag(request, {}, request["TagKeys"]),
            "ListTags": lambda request, region: {"Tags": listed(self._by_arn(request).tags)},
        }

    def has(self, operation: str, request: Mapping[str, Any]) -> bool:
        """Whether ``operation`` is ours; of tags, those of tuning jobs."""
        arn = request.get("ResourceArn")
        return operation in self._operations and (arn is None or (isinstance(arn, str) and ARN_PART in arn))

    def answer(self, operation: str, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        """Answer a request; raises ApiError where it is refused."""
        check(operation, request)
        return self._operations[operation](request, region)

    def shut_down(self) -> None:
        """Launch nothing more."""
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.shut_down()

    def _record(self, request: Mapping[str, Any], region: str) -> TuningRecord:
        return self._records.get(request[NAME], region)

    def _by_arn(self, request: Mapping[str, Any]) -> TuningRecord:
        region, name = request["ResourceArn"].split(":")[3], request["ResourceArn"].rpartition("/")[2]
        return self._records.get(name, region)

    def _tag(self, request: Mapping[str, Any], new: Mapping[str, str], removed: Sequence[str]) -> Mapping[str, Any]:
        record = self._by_arn(request)
        tags = {key: value for key, value in {**record.tags, **new}.items() if key not in removed}
        self._records.update(record, tags=tags)
        return {"Tags": listed(tags)} if new else {}

    def _create(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        parameters = {name: value for name, value in request.items() if name != "Tags" and value is not None}
        if (parameters.get("Autotune") or {}).get("Mode") == "Enabled":
            raise validation("Autotune is not available here: give an objective and ranges")
        config, now = parameters["HyperParameterTuningJobConfig"], self._records.clock.now()
        seed = config.get("RandomSeed")
        # Drawn once and kept: the record tells by which one it was.
        seed = secrets.randbelow(2**31) if seed is None else seed
        definitions = definitions_of(parameters, seed)
        check_definitions(parameters, definitions)
        parents = self._parents(parameters, region)
        name = parameters[NAME]
        record = TuningRecord(
            name=name,
            arn=f"arn:aws:sagemaker:{region}:{ACCOUNT}{ARN_PART}{name.lower()}",
            region=region,
            request=parameters,
            tags=tags_of(request.get("Tags") or []),
            seed=seed,
            created_s=now,
            modified_s=now,
        )
        self._records.add(record)
        run = TuningRun(self._records, record, self._jobs, definitions, _known(parents))
        with self._lock:
            self._runs[region, name] = run
        run.start()
        return {"HyperParameterTuningJobArn": record.arn}

    def _parents(self, request: Mapping[str, Any], region: str) -> list[TuningRecord]:
        warm = request.get("WarmStartConfig") or {}
        names = [item[NAME] for item in warm.get("ParentHyperParameterTuningJobs") or []]
        parents = []
        for name in names:
            try:
                parent = self._records.get(name, region)
            except ApiError:
                raise validation(f"WarmStartConfig: there is no tuning job {name!r} in {region}") from None
            if not parent.final:
                raise validation(
                    f"WarmStartConfig: the tuning job {name!r} is {parent.status}; wait until it has ended"
                )
            parents.append(parent)
        return parents

    def _describe(self, record: TuningRecord) -> Mapping[str, Any]:
        warm = record.request.get("WarmStartConfig") or {}
        family = []
        if warm.get("WarmStartType") == SAME:
            records = {one.name: one for one in self._records.all(record.region)}
            names = [item[NAME] for item in warm["ParentHyperParameterTuningJobs"]]
            # One that was deleted since is passed over.
            family = [records[name] for name in names if name in records]
        return answers.describe(record, _objectives(record), self._jobs.training_job, family)

    def _stop(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        record = self._record(request, region)
        run = self._runs.get((region, record.name))
        if run is None:
            raise validation(
                f"The request was rejected because the hyper parameter tuning job is in status {record.status}."
            )
        run.stop()
        return {}

    def _delete(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        record = self._record(request, region)
        if not record.final:
            raise ApiError("ResourceInUse", f"The tuning job {record.name} is {record.status}; stop it first")
        self._records.delete(record)
        with self._lock:
            self._runs.pop((region, record.name), None)
        return {}

    def _list(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        records = [record for record in self._records.all(region) if matches(record, request)]
        keys: dict[str, Callable[[TuningRecord], Any]] = {
            "Name": lambda record: record.name,
            "Status": lambda record: record.status,
            "CreationTime": lambda record: record.created_s,
        }
        key = keys[request.get("SortBy") or "CreationTime"]
        records.sort(key=lambda record: (key(record), record.name), reverse=request.get("SortOrder") != "Ascending")
        page, more = page_of(records, request, lambda record: record.name)
        summaries = [answers.summarize(record, self._jobs.training_job) for record in page]
        return {"HyperParameterTuningJobSummaries": summaries, **more}

    def _list_children(self, request: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        record = self._record(request, region)
        pairs = [(child, job) for child in record.children if (job := self._job(child, region)) is not None]
        pairs = [pair for pair in pairs if request.get("StatusEquals") in (None, pair[1].status)]
        # What has no value stands last in either order.
        none = float("inf") if request.get("SortOrder") != "Descending" else float("-inf")
        keys: dict[str, Callable[[Child, JobRecord], Any]] = {
            "Name": lambda child, job: child.name,
            "CreationTime": lambda child, job: job.created_s,
            "Status": lambda child, job: job.status,
            "FinalObjectiveMetricValue": lambda child, job: none if child.value is None else child.value,
        }
        key = keys[request.get("SortBy") or "Name"]
        pairs.sort(key=lambda pair: (key(*pair), pair[0].name), reverse=request.get("SortOrder") == "Descending")
        page, more = page_of(pairs, request, lambda pair: pair[0].name)
        objectives = _objectives(record)
        return {
            "TrainingJobSummaries": [answers.summarize_child(child, objectives, job) for child, job in page],
            **more,
        }

    def _job(self, child: Child, region: str) -> JobRecord | None:
        try:
            return self._jobs.training_job(child.name, region)
        except ApiError:
            return None  # deleted


def _objectives(record: TuningRecord) -> list[Objective]:
    return [definition.objective for definition in definitions_of(record.request, record.seed)]


def _known(parents: Sequence[TuningRecord]) -> list[Trial]:
    """Return the trials of parents, under numbers of their own."""
    children = [child.trial for parent in parents for child in parent.children if child.value is not None]
    return [
        Trial(number=-1 - number, assignment=trial.assignment, losses=trial.losses, ended=True, loss=trial.loss)
        for number, trial in enumerate(children)
    ]
