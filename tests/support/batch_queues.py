"""Batch's queues, and a hand-driven Batch whose attempts end when a test says so."""

from pathlib import Path

from raysm.contract.home import Clock
from raysm.local.server.batch.program_work import NotNow, Seen
from raysm.local.server.batch.records import BatchJob, BatchJobs
from raysm.local.server.batch.resources import Resource, Resources
from raysm.local.server.batch.run import BatchRun

LOGS = "/aws/batch/job"


def make_queue(batch, name="programs", *, vcpus=8):
    batch.create_compute_environment(
        computeEnvironmentName=f"{name}-env",
        type="MANAGED",
        computeResources={"type": "FARGATE", "maxvCpus": vcpus, "subnets": ["subnet-1"], "securityGroupIds": ["sg-1"]},
    )
    return batch.create_job_queue(
        jobQueueName=name,
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": f"{name}-env"}],
    )["jobQueueArn"]


def define(batch, script, name="program", **fields):
    """Register a definition that runs a line of shell."""
    container = {"image": "any:latest", "command": ["sh", "-c", script], **fields.pop("container", {})}
    return batch.register_job_definition(
        jobDefinitionName=name, type="container", containerProperties=container, **fields
    )["jobDefinitionArn"]


class HandWork:
    """Attempts that end when a test says so.

    Attributes:
        began: Names of the jobs that began, in that order.
        seen: By a job's name, what is seen of its latest attempt.
        full: What is said instead of beginning; empty where there is room.
        stopped: Names of the jobs that were asked to end.
    """

    def __init__(self):
        self.began, self.seen, self.full, self.stopped = [], {}, "", []
        self.limits_s = {}

    def capacity(self, environment):
        return environment["room"]

    def need(self, job):
        return float(job.request.get("need", 1))

    def limit_s(self, job):
        return self.limits_s.get(job.name)

    def begin(self, job):
        if self.full:
            raise NotNow(self.full)
        self.began.append(job.name if job.index is None else f"{job.name}:{job.index}")
        self.seen.setdefault(job.name, Seen(status="RUNNING"))
        return f"resource-of-{job.name}-{len(job.tries) + 1}"

    def look(self, job):
        return self.seen[job.name]

    def stop(self, job):
        self.stopped.append(job.name)
        self.seen[job.name] = Seen(status="FAILED", reason="it was stopped")

    def close(self):
        pass


class HandBatch:
    """One queue and its jobs, brought on by ``step`` alone."""

    def __init__(self, home: Path, clock: Clock, *, room=2.0, **queue):
        self.clock, self.work = clock, HandWork()
        self.jobs, self.resources = BatchJobs(home, clock), Resources(home)
        environment = Resource(part="compute-environment", region="us-east-1", name="room", body={"room": room})
        self.environment = self.resources.add(environment)
        order = [{"order": 1, "computeEnvironment": "room"}]
        body = {"priority": 1, "computeEnvironmentOrder": order, **queue}
        self.queue = self.resources.add(Resource(part="job-queue", region="us-east-1", name="queue", body=body))
        self.run = BatchRun(self.jobs, self.resources, self.work)
        self.step = self.run.step

    def send(self, name, *, priority=0, size=None, **request):
        """Send a job; its id is its name."""
        job = BatchJob(
            id=name,
            kind="job",
            name=name,
            region="us-east-1",
            queue=self.queue.arn,
            request=request,
            created_s=self.clock.now(),
            priority=priority,
            size=size,
        )
        self.jobs.add([job])
        return job

    def job(self, name):
        return self.jobs.find(name)

    def is_now(self, name, status="RUNNING", **seen):
        self.work.seen[name] = Seen(status=status, **seen)
