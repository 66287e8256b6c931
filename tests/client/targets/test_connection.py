"""What a connection does that answers only what it must."""

import time
from pathlib import Path

from raysm import __version__
from raysm.client.targets.connection import Bucket, Connection, Polling, client_options


class Least(Connection):
    polling = Polling(first_s=1.0, most_s=2.0)
    home = Path("/nowhere")

    def region(self, clients):
        return "r"

    def bucket(self, region, account):
        return Bucket(name=f"b-{region()}")

    def data_root(self, bucket_root):
        return bucket_root

    def resolve(self, request, region):
        return region(), ""

    def make_client(self, name):
        return name


def test_a_call_that_failed_is_not_made_again_where_nobody_says_otherwise():
    assert not Least().reconnect(ConnectionError())


def test_a_job_is_waited_for_by_a_pause_that_never_outlasts_the_callers_time():
    began = time.monotonic()
    Least().wait_for_end("a-job", 600.0, 0.02)
    assert 0.02 <= time.monotonic() - began < 300


def test_a_bucket_is_nobodys_in_particular_where_nobody_says_so():
    bucket = Least().bucket(lambda: "r", lambda: "account")
    assert (bucket.name, bucket.is_named, bucket.owner) == ("b-r", False, None)


def test_every_client_names_raysm_and_takes_what_a_target_adds():
    options = client_options(proxies={})
    assert options.user_agent_extra == f"raysm/{__version__}"
    assert options.proxies == {}
    assert options.retries == {"mode": "standard", "max_attempts": 5}


def test_a_client_of_who_repeats_calls_himself_makes_each_once():
    assert client_options(repeats=False).retries == {"mode": "standard", "total_max_attempts": 1}


def test_where_the_target_does_not_say_that_a_line_has_come_the_pause_is_waited_within_the_limit():
    assert Least().wait_for_change("a-job", 3, 600.0, 0.02) == 3
