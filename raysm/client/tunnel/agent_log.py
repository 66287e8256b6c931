"""What the agent of an instance complains of: what flows in is the instance, what flows out is its last line.

SageMaker keeps it in a stream of its own, beside that of the instance
(https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html).
"""

from raysm.client.service import Service
from raysm.contract.job_api import TRAINING
from raysm.errors import ServiceError

__all__ = ["last_complaint"]


def last_complaint(service: Service, job: str, host: str) -> str:
    """Return the last line of the agent, with the stream that has it; empty where there is none to be read."""
    group = TRAINING.log_group
    try:
        page = service.call(
            "logs", "describe_log_streams", logGroupName=group, logStreamNamePrefix=f"{job}/{host}-", limit=50
        )
        # One that was restarted has a stream for each start; their names end with its time.
        streams = sorted(name for name in (item["logStreamName"] for item in page["logStreams"]) if _is_agents(name))
        if not streams:
            return ""
        events = service.call(
            "logs", "get_log_events", logGroupName=group, logStreamName=streams[-1], limit=1, startFromHead=False
        )["events"]
    except ServiceError:
        # It is told beside an error: that the logs may not be read either is another matter.
        return ""
    return f"{events[-1]['message'].strip()} ({group}, stream {streams[-1]})" if events else ""


def _is_agents(stream: str) -> bool:
    return stream.endswith("/ssm")
