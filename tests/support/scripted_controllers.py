"""boto3's client of AWS Batch as far as programs go: queues and definitions are as the test says, jobs too."""

from types import SimpleNamespace

from tests.support.sagemaker import NoEvents, check_call

ARN = "arn:aws:batch:eu-west-1:123456789012:"


class ScriptedControllers:
    """One queue, ``controllers``, whose jobs have the ``status`` and the ``reason`` that the test sets."""

    meta = SimpleNamespace(events=NoEvents())

    def __init__(self):
        self.definitions, self.submitted = [], []
        self.status, self.reason = "RUNNING", ""

    def describe_job_definitions(self, **call):
        check_call("batch", "describe_job_definitions", call)
        asked = call.get("jobDefinitions")
        return {
            "jobDefinitions": [
                each
                for each in self.definitions
                if each["jobDefinitionName"] == call.get("jobDefinitionName")
                or (asked and f"{each['jobDefinitionName']}:{each['revision']}" in asked)
            ]
        }

    def register_job_definition(self, **call):
        check_call("batch", "register_job_definition", call)
        revision = 1 + len(self.definitions)
        self.definitions.append({**call, "revision": revision})
        name = call["jobDefinitionName"]
        arn = f"{ARN}job-definition/{name}:{revision}"
        return {"jobDefinitionName": name, "jobDefinitionArn": arn, "revision": revision}

    def submit_job(self, **call):
        check_call("batch", "submit_job", call)
        self.submitted.append(call)
        return {"jobId": f"id-{len(self.submitted)}", "jobName": call["jobName"]}

    def describe_jobs(self, **call):
        check_call("batch", "describe_jobs", call)
        known = [f"id-{number + 1}" for number in range(len(self.submitted))]
        jobs = [
            {"jobId": job, "status": self.status, "statusReason": self.reason}
            for job in call["jobs"]
        ]
        return {"jobs": [job for job in jobs if job["jobId"] in known]}
