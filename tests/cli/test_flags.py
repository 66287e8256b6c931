"""The table of flags: each chooses one option, takes what the option's type says, and none is forgotten."""

import dataclasses
import typing

import pytest

from raysm.cli.flags import COMMON, SCRIPT, SIMILARITY, TARGET, TRAIN
from raysm.client.options import SubmitKeywords
from raysm.client.settings import OWN, TARGETS, hint_of, schema
from raysm.request import JobRequest, Script, Security

pytestmark = pytest.mark.smoke

EVERY = (*COMMON, *TARGET, *SCRIPT, *TRAIN, *SIMILARITY)


@pytest.mark.parametrize("flag", EVERY, ids=lambda flag: flag.name)
def test_every_flag_chooses_an_option_that_there_is(flag):
    table, name = flag.key[0], flag.key[-1]
    if table == "workload":
        return  # argparse would not have been told its type: the parser is built from it
    if table == "target":
        assert any(name in typing.get_type_hints(kind) for kind in TARGETS.values())
        return
    assert hint_of(flag.key) is not None


def test_every_keyword_of_submit_is_an_option_of_the_files_and_so_of_the_command_line():
    tables = set(schema(workload=True))
    keywords = set(typing.get_type_hints(SubmitKeywords))
    assert tables - set(TARGETS) == keywords | {"workload"}
    fields = {field.name for field in dataclasses.fields(JobRequest)}
    assert keywords - fields - {"on"} == set(OWN)


def test_no_two_flags_have_one_name_or_choose_one_option():
    assert len({flag.name for flag in EVERY}) == len({flag.dest for flag in EVERY}) == len(set(EVERY))
    paths = [flag.path for flag in (*COMMON, *TARGET, *TRAIN)]
    assert len(paths) == len(set(paths))
    assert Script.kind == "script"


# What the policies of companies demand: VPC, keys, isolation, tags, a bucket's prefix, a warm pool's time.
DEMANDED = {
    *(field.name for field in dataclasses.fields(Security)),
    *("tags", "environment", "hyperparameters", "kind", "output_uri", "checkpoint_uri", "volume_gb", "keep_alive_s"),
}


def test_what_accounts_demand_of_a_job_has_a_flag_each():
    assert {flag.key[-1] for flag in COMMON} >= DEMANDED
