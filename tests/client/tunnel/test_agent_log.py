"""What the agent of an instance complains of, at a service of logs that answers as a script says."""

from raysm.client.service import Service
from raysm.client.tunnel.agent_log import last_complaint
from tests.support.sagemaker import aws, refusal


class Logs:
    """Streams, and the last line of each."""

    def __init__(self, lines, refuses=None):
        self.lines, self.refuses, self.asked = lines, refuses, []

    def describe_log_streams(self, **request):
        self.asked.append(request)
        if self.refuses is not None:
            raise self.refuses
        return {"logStreams": [{"logStreamName": name} for name in self.lines]}

    def get_log_events(self, **request):
        self.asked.append(request)
        return {"events": [{"message": line} for line in self.lines[request["logStreamName"]]]}


def complaint(lines, refuses=None):
    logs = Logs(lines, refuses)
    return last_complaint(Service(aws(), clients=lambda name: logs), "job", "algo-1"), logs.asked


def test_it_is_the_last_line_of_the_agents_stream_with_the_place_where_it_stands():
    said, asked = complaint({"job/algo-1-17": ["training"], "job/algo-1-17/ssm": ["no permission\n"]})
    assert said == "no permission (/aws/sagemaker/TrainingJobs, stream job/algo-1-17/ssm)"
    assert asked[0]["logStreamNamePrefix"] == "job/algo-1-"


def test_of_several_starts_it_is_the_last():
    assert complaint({"job/algo-1-17/ssm": ["old"], "job/algo-1-18/ssm": ["new"]})[0].startswith("new ")


def test_where_there_is_no_stream_or_no_line_there_is_no_complaint():
    assert complaint({"job/algo-1-17": ["training"]})[0] == ""
    assert complaint({"job/algo-1-17/ssm": []})[0] == ""


def test_where_the_logs_may_not_be_read_there_is_no_complaint():
    assert complaint({}, refusal("AccessDeniedException", "no"))[0] == ""
