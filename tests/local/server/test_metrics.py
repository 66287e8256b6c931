"""Metrics in the lines of a job, and what is passed on of them."""

from raysm.local.server.metrics import BATCH, MetricScanner
from raysm.local.server.records import JobRecord


class Sent:
    """CloudWatch, and those who hand out its client."""

    def __init__(self):
        self.calls = []

    def client(self, service, region):
        assert (service, region) == ("cloudwatch", "eu-west-1")
        return self

    def put_metric_data(self, **call):
        self.calls.append(call)


def scanner(*definitions, sent=None):
    record = JobRecord(
        kind="training", name="a-job", arn="arn", region="eu-west-1", request={}, created_s=1.0, modified_s=1.0
    )
    found = [{"Name": name, "Regex": regex} for name, regex in definitions]
    return MetricScanner(sent or Sent(), record, found)


def last(metrics):
    return [(metric["MetricName"], metric["Value"]) for metric in metrics.last()]


def test_every_value_of_a_line_is_found_and_the_last_one_of_each_metric_stays():
    metrics = scanner(("loss", r"loss=(\S+)"), ("acc", r"acc=(\S+)"))
    metrics.line("loss=2.0 acc=0.5 loss=1.5")
    metrics.line("nothing")
    assert last(metrics) == [("loss", 1.5), ("acc", 0.5)]


def test_what_is_no_number_or_no_expression_finds_nothing():
    metrics = scanner(("loss", r"loss=(\S+)"), ("group", "loss"), ("broken", "("), ("maybe", "x(1)?"))
    metrics.line("loss=high x")
    assert last(metrics) == []


def test_a_loss_that_diverges_is_passed_over():
    metrics = scanner(("loss", r"loss=(\S+)"))
    for text in ("loss=2.0", "loss=nan", "loss=inf", "loss=-Infinity"):
        metrics.line(text)
    assert last(metrics) == [("loss", 2.0)]


def test_each_value_is_sent_once_in_calls_that_are_not_too_large():
    sent = Sent()
    metrics = scanner(("n", r"n=(\d+)"), sent=sent)
    for number in range(BATCH + 1):
        metrics.line(f"n={number}")
    metrics.send()
    metrics.send()
    assert [len(call["MetricData"]) for call in sent.calls] == [BATCH, 1]
    assert {call["Namespace"] for call in sent.calls} == {"/aws/sagemaker/TrainingJobs"}
    assert sent.calls[1]["MetricData"][0]["Dimensions"] == [{"Name": "TrainingJobName", "Value": "a-job"}]
