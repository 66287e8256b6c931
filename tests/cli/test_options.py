"""Each flag chooses one option of a request, and every option can be chosen."""

import argparse
import dataclasses
import typing

import pytest

from raysm.cli.options import COMMON, SCRIPT, SIMILARITY, TARGET, TRAIN, add_entered, add_reading
from raysm.client.options import SubmitKeywords
from raysm.client.settings import OWN, TARGETS, hint_of, schema
from raysm.request import JobRequest, Security

pytestmark = pytest.mark.smoke

EVERY = (*COMMON, *TARGET, *SCRIPT, *TRAIN, *SIMILARITY)


def test_every_flag_chooses_an_option_that_exists():
    for flag in EVERY:
        # Options of the workload are checked when the parser is built: it takes their types.
        if flag.key[0] == "target":
            assert any(flag.key[-1] in typing.get_type_hints(kind) for kind in TARGETS.values()), flag
        elif flag.key[0] != "workload":
            assert hint_of(flag.key) is not None, flag


def test_every_keyword_of_submit_is_an_option_of_files_and_of_the_command_line():
    keywords = set(typing.get_type_hints(SubmitKeywords))
    assert set(schema(workload=True)) - set(TARGETS) == keywords | {"workload"}
    assert keywords - {field.name for field in dataclasses.fields(JobRequest)} - {"on"} == set(OWN)


def test_no_two_flags_have_one_name_or_choose_one_option():
    assert len({flag.name for flag in EVERY}) == len({flag.dest for flag in EVERY}) == len(set(EVERY))
    paths = [flag.path for flag in (*COMMON, *TARGET, *TRAIN)]
    assert len(paths) == len(set(paths))


# What the policies of companies demand: VPC, keys, isolation, tags, a bucket's prefix, a warm pool's time.
DEMANDED = {
    *(field.name for field in dataclasses.fields(Security)),
    *("tags", "environment", "hyperparameters", "kind", "output_uri", "checkpoint_uri", "volume_gb", "keep_alive_s"),
}


def test_what_accounts_demand_of_a_job_has_a_flag_each():
    assert {flag.key[-1] for flag in COMMON} >= DEMANDED


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--instance", "algo-2", "--region", "eu-west-1"], {"instance": "algo-2", "region": "eu-west-1"}),
        (["--on", "algo-2"], {"instance": "algo-2", "on": None}),
        (["--on", "aws", "--on", "algo-12"], {"instance": "algo-12", "on": "aws"}),
    ],
)
def test_an_instance_may_be_named_where_the_place_is(words, expected):
    parser = argparse.ArgumentParser()
    add_entered(parser)
    assert expected.items() <= vars(parser.parse_args(words)).items()


def test_a_word_that_is_neither_a_place_nor_an_instance_is_refused(capsys):
    parser = argparse.ArgumentParser()
    add_entered(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--on", "algo2"])
    assert "--on: 'algo2' is neither local nor aws nor an instance, algo-2" in capsys.readouterr().err


def test_a_command_that_only_reads_takes_no_options_of_jobs():
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_reading(parser)
    assert parser.parse_known_args(["--max-runtime", "5"])[1] == ["--max-runtime", "5"]
