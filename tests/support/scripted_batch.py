"""boto3's client of AWS Batch as far as service jobs go: a job is as the test says."""

import itertools
import json
from types import SimpleNamespace

from botocore.validate import ParamValidator

from tests.support.sagemaker import NoEvents, refusal, service_model

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/"


class ScriptedBatch:
    """One queue, ``training``, and its jobs.

    Attributes:
        jobs: What DescribeServiceJob says of each, in the order in which they were sent.
        requests: What SubmitServiceJob was sent, whether it was taken or not.
        queue: What DescribeJobQueues says of the queue.
        refusals: Errors of the next SubmitServiceJobs; of a pair (error, True) the job is there nevertheless.
    """

    meta = SimpleNamespace(events=NoEvents())

    def __init__(self, sagemaker):
        self.sagemaker = sagemaker
        self.jobs, self.requests, self.refusals = [], [], []
        self.queue = {"jobQueueName": "training", "state": "ENABLED", "serviceEnvironmentOrder": [{"order": 1}]}
        self.terminated = {}
        self._clock_ms = itertools.count(1_700_000_000_000, 1000)

    def describe_job_queues(self, **call):
        checked("DescribeJobQueues", call)
        return {"jobQueues": [self.queue] if self.queue["jobQueueName"] in call["jobQueues"] else []}

    def submit_service_job(self, **call):
        checked("SubmitServiceJob", call)
        self.requests.append(call)
        if any(job["clientToken"] == call["clientToken"] for job in self.jobs):
            # As Batch's reference says of a token that is used again.
            raise refusal("ClientException", "a request of this clientToken was received before", "SubmitServiceJob")
        error, is_taken = self.refusals.pop(0) if self.refusals else (None, True)
        if is_taken:
            self.jobs.append({
                **call, "jobId": f"id-{len(self.jobs)}", "jobArn": "arn:aws:batch:us-east-1:123456789012:service-job/x",
                "status": "SUBMITTED", "createdAt": next(self._clock_ms), "isTerminated": False,
            })  # fmt: skip
        if error is not None:
            raise error
        return {"jobId": self.jobs[-1]["jobId"], "jobName": call["jobName"], "jobArn": self.jobs[-1]["jobArn"]}

    def describe_service_job(self, **call):
        checked("DescribeServiceJob", call)
        return dict(self._job(call["jobId"]))

    def list_service_jobs(self, **call):
        checked("ListServiceJobs", call)
        (chosen,) = call["filters"]
        jobs = [
            job for job in reversed(self.jobs) if chosen["name"] != "JOB_NAME" or job["jobName"] in chosen["values"]
        ]
        begin = int(call.get("nextToken") or 0)
        page = jobs[begin : begin + call["maxResults"]]
        more = {"nextToken": str(begin + len(page))} if begin + len(page) < len(jobs) else {}
        return {"jobSummaryList": [dict(job) for job in page], **more}

    def terminate_service_job(self, **call):
        checked("TerminateServiceJob", call)
        self.terminated[self._job(call["jobId"])["jobName"]] = call["reason"]

    def _job(self, identifier):
        return next(job for job in self.jobs if job["jobId"] == identifier)

    def change(self, name, status, **changes):
        """Bring a job to a status."""
        job = next(job for job in self.jobs if job["jobName"] == name)
        job.update(status=status, **changes)
        return job

    def begin(self, name):
        """Have a job run: its training job is made, under Batch's name, which is returned."""
        job = self.change(name, "RUNNING", startedAt=next(self._clock_ms))
        request = json.loads(job["serviceRequestPayload"]) | {"TrainingJobName": f"AWSBatch{name}0123"[:63]}
        self.sagemaker.create_training_job(**request)
        job["latestAttempt"] = {
            "serviceResourceId": {"name": "TrainingJobArn", "value": f"{ARN}{request['TrainingJobName']}"}
        }
        return request["TrainingJobName"]


def checked(operation, call):
    """Check a call as boto3 itself would."""
    report = ParamValidator().validate(call, service_model("batch").operation_model(operation).input_shape)
    assert not report.has_errors(), report.generate_report()
