"""What is nobody else's business is taken out, by what is known and by its form."""

import datetime
import io

import pytest

from raysm.client.first_job.blanking import ACCOUNT, Blanks

BLANKS = Blanks({"arn:aws:iam::999988887777:user/ann": "arn:aws:iam::123456789012:user/USER", "my-bucket": "BUCKET"})


@pytest.mark.parametrize(
    ("text", "blanked"),
    [
        ("arn:aws:iam::999988887777:user/ann did it", f"arn:aws:iam::{ACCOUNT}:user/USER did it"),
        ("s3://my-bucket/x", "s3://BUCKET/x"),
        ("999988887777.dkr.ecr.eu-west-1.amazonaws.com/x", f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/x"),
        ("sagemaker-eu-west-1-999988887777", f"sagemaker-eu-west-1-{ACCOUNT}"),
        ("key ASIAABCDEFGHIJKLMNOP", "key (key id)"),
        ("https://x/?X-Amz-Signature=abc123&y=1", "https://x/?X-Amz-Signature=(blanked)&y=1"),
        ("assumed-role/x/ann.smith@example.com", "assumed-role/x/(address)"),
        ("A" * 120 + "==", "(long value)"),
        ("20261122-095206 1700000000 1763805122.123456789012", "20261122-095206 1700000000 1763805122.123456789012"),
    ],
)
def test_a_text_is_blanked(text, blanked):
    assert BLANKS.text(text) == blanked


def test_a_value_becomes_json_without_contents_and_tokens():
    moment = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)
    value = {
        "Body": b"secret",
        "Stream": io.BytesIO(b"secret"),
        "nextForwardToken": "f/123",
        "At": moment,
        "List": ["my-bucket", 1, None, True],
    }
    assert BLANKS.value(value) == {
        "Body": "(6 bytes)",
        "Stream": "(BytesIO)",
        "nextForwardToken": "(blanked)",
        "At": "2026-01-02T00:00:00+00:00",
        "List": ["BUCKET", 1, None, True],
    }


def test_a_name_that_is_not_known_replaces_nothing():
    assert Blanks({"": "X"}).text("abc") == "abc"
