"""What a kind of Batch job is to the rest."""

from raysm.local.server.batch.program_work import ProgramWork
from raysm.local.server.batch.resource_operations import KINDS
from raysm.local.server.batch.training_work import TrainingWork
from raysm.local.server.batch.work import Seen


def test_every_kind_of_job_names_environments_that_a_queue_can_have():
    uses = {use.key: use for kind in KINDS for use in kind.uses}
    for work in (ProgramWork, TrainingWork):
        use = uses[work.environments]
        assert (use.entry, use.part) == (work.environment, work.part)


def test_what_is_seen_is_no_lack_of_capacity_unless_it_says_so():
    assert not Seen(status="FAILED").is_starved
