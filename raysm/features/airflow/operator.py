"""The operator that runs a job as a task, and the sensor that waits for another job.

Both defer: while the job runs, Airflow's triggerer waits for it, and no worker is occupied.

A job's name follows from the task instance, see ``NumberedJobs``. So every try of a task finds the
job of an earlier one, also if its worker died before it could store anything.
"""

import dataclasses
import hmac
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink, BaseSensorOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout
from airflow.sdk.execution_time.xcom import XCom

from raysm.core.client.job.description import Status
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.job.numbered import NumberedJobs, task_name
from raysm.core.client.options import SubmitOptions, check_names, default_of
from raysm.core.client.service import Service, connect
from raysm.core.client.submit import prepare
from raysm.core.request import Cluster, Target
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest, JobFailed, JobStopped
from raysm.features.airflow.trigger import JobTrigger

TRY_TAG = "raysm:airflow-try"
"""Tag: the number of the task's try that sent the job."""


class JobLink(BaseOperatorLink):  # type: ignore[misc]  # mypy does not read Airflow
    name = "SageMaker job"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        # The operator stores it as soon as it knows the job, and not only at the task's end.
        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or ""


class RaysmOperator(BaseOperator):  # type: ignore[misc]  # mypy does not read Airflow
    """One job as a task, which succeeds or fails with it.

    A retry waits for the job of an earlier try if that still runs or has completed, and sends a
    new job otherwise. So does a task that was cleared, but it never takes a job that had completed
    before. If a user clears the task, marks it, or if ``execution_timeout`` is over, the job is
    stopped.

    The XCom is a dictionary with the job's name and the prefixes of its outputs: ``job``,
    ``model`` and ``data``.

    Args:
        workload: What ``raysm.submit`` takes: ``Script``, ``TorchScript``, ``Similarity``, a
            function.
        on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
        cluster: The instances, as for ``raysm.submit``.
        args: The arguments of a script, in place of the workload's own; templated.
        inputs: Channels by name; templated.
        environment: Variables of every instance; templated.
        hyperparameters: Values that the job finds in ``SM_HPS``; templated.
        options: Other options of ``raysm.submit`` by name: ``{"limits": raysm.Limits(…)}``;
            templated.
        kwargs: Those of every operator: ``task_id``, ``retries``, ``execution_timeout``.
    """

    template_fields = ("args", "inputs", "environment", "hyperparameters", "options")
    operator_extra_links = (JobLink(),)

    def __init__(
        self,
        *,
        workload: Any,
        on: Target | None = None,
        cluster: Cluster | None = None,
        args: Sequence[str] | None = None,
        inputs: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.workload = workload
        self.on = on
        self.cluster = cluster
        self.args = args
        self.inputs = inputs
        self.environment = environment
        self.hyperparameters = hyperparameters
        self.options = options
        self._job: Job | None = None
        self._is_killed = False

    def execute(self, context: Any) -> None:
        service = connect(self.on)
        job = self._job = self._job_of_earlier_try(context, service) or self._send(context, service)
        if self._is_killed:
            # Airflow ended the task while the job was sent: on_kill did not know it yet.
            job.cancel()
            raise AirflowException(f"the job {job.name} was stopped, since Airflow ended the task")
        link = self.on.console_link(job.arn, job.api.console_page, job.name) if self.on else ""
        context["ti"].xcom_push(key=self.operator_extra_links[0].xcom_key, value=link)
        self.log.info("the job is %s; its log: %s", job.name, link or f"raysm logs -f {job.name}")
        trigger = JobTrigger(job.name, to_json(self.on), stops=True)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=self.execution_timeout)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> dict[str, str]:
        return outputs_of(attach(event["job"], connect(self.on)))

    def resume_execution(self, next_method: str, next_kwargs: Any, context: Any) -> Any:
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            # Airflow ends the trigger, and asks neither it nor the task to stop anything.
            _, job = self._jobs(context).last(connect(self.on))
            if job is not None:
                job.cancel()
            raise

    def on_kill(self) -> None:
        """Stop the job: Airflow ends the task on a worker, before it is deferred."""
        self._is_killed = True
        if self._job is not None:
            self._job.cancel()

    def _job_of_earlier_try(self, context: Any, service: Service) -> Job | None:
        """Return the job of an earlier try if this try shall wait for it."""
        _, job = self._jobs(context).last(service)
        if job is None:
            return None
        if job.status is Status.STOPPING:
            self.log.info("the job %s of an earlier try is stopping", job.name)
            job.wait()
        if not job.done():
            self.log.info("the job %s of an earlier try still runs", job.name)
            return job
        # A clear raises max_tries by the tries before it: they are not this task's retries.
        tries_before_clear = context["ti"].max_tries - self.retries
        if job.status is Status.COMPLETED and int(job.tags[TRY_TAG]) > tries_before_clear:
            self.log.info("the job %s of an earlier try has completed meanwhile", job.name)
            return job
        return None

    def _send(self, context: Any, service: Service) -> Job:
        jobs = self._jobs(context)
        number, _ = jobs.last(service)
        name = jobs.name(number + 1)
        # Two tries at once must write the same payload, or the job would find another one's token.
        key = conf.get("core", "fernet_key", fallback="")
        token = hmac.new(key.encode(), name.encode(), "sha256").hexdigest().encode()
        prepared = prepare(
            self._workload(),
            on=service,
            job_name=name,
            token=token if key else None,
            own_tags={TRY_TAG: str(context["ti"].try_number)},
            **{"name": self._task_name(context), **self._submit_options()},
        )
        # If the answer is lost, the job may exist: the next try sends the same again.
        return prepared.send(leaves_payload=True)

    def _workload(self) -> Any:
        if self.args is None:
            return self.workload
        if "args" not in getattr(self.workload, "__dataclass_fields__", ()):
            raise InvalidRequest(
                f"{self.workload!r} takes no args; give them to the workload itself"
            )
        return dataclasses.replace(self.workload, args=tuple(self.args))

    def _submit_options(self) -> dict[str, Any]:
        own = {
            "cluster": self.cluster,
            "inputs": self.inputs,
            "environment": self.environment,
            "hyperparameters": self.hyperparameters,
        }
        options = {name: value for name, value in own.items() if value is not None}
        options |= self.options or {}
        check_names(options)
        for name in options.keys() - SubmitOptions.__annotations__.keys():
            raise InvalidRequest(
                f"RaysmOperator takes no {name} among options: its tries find each other's jobs by "
                "their names in one region",
                remedy="continue with checkpoints by checkpoint_uri, and give on to the operator",
            )
        return options

    def _task_name(self, context: Any) -> str:
        ti = context["ti"]
        return str((self.options or {}).get("name", task_name(f"{ti.dag_id}-{ti.task_id}")))

    def _jobs(self, context: Any) -> NumberedJobs:
        """Return the jobs of this task instance."""
        ti = context["ti"]
        # Two Airflows may run the same DAGs in one account.
        airflow = conf.get("api", "base_url", fallback="")
        project = (self.options or {}).get("project", default_of("project"))
        return NumberedJobs(
            task=self._task_name(context),
            run=context["dag_run"].run_after,
            identity=[airflow, project, ti.dag_id, ti.run_id, ti.task_id, ti.map_index],
        )


class RaysmSensor(BaseSensorOperator):  # type: ignore[misc]  # mypy does not read Airflow
    """Waits for a job that the DAG did not send; succeeds or fails with it, and never stops it.

    Args:
        job: Its name; templated.
        on: Its target; None is ``Local()``.
        kwargs: Those of every sensor: ``timeout``, ``soft_fail``.
    """

    template_fields = ("job",)

    def __init__(self, *, job: str, on: Target | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.on = on

    def execute(self, context: Any) -> None:
        # A name that is wrong fails here, and not in the triggerer.
        name = attach(self.job, connect(self.on)).name
        trigger = JobTrigger(name, to_json(self.on), stops=False)
        timeout = timedelta(seconds=self.timeout)
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timeout)

    def execute_complete(self, context: Any, event: Mapping[str, Any]) -> dict[str, str]:
        return outputs_of(attach(event["job"], connect(self.on)))


def outputs_of(job: Job) -> dict[str, str]:
    """Return the XCom of a job that has ended; raise its failure as Airflow's."""
    try:
        error = job.exception()
    except JobStopped as stopped:
        # The user who stopped it does not want a retry to send it again.
        raise AirflowFailException(str(stopped)) from stopped
    if error is not None:
        # A function's own exception has the JobFailed as its cause.
        failed = error if isinstance(error, JobFailed) else error.__cause__
        raise AirflowException(str(failed)) from error
    return {"job": job.name, "model": f"{job.outputs}/model", "data": f"{job.outputs}/data"}
