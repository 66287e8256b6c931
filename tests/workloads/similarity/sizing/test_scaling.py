"""The model of many instances: what it says of the head, and of what it would choose. Nothing is measured here."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from raysm.workloads.similarity.sizing.scaling import (
    GROUPS,
    HEAD,
    PART_S,
    PRODUCT_S,
    RANGES,
    Cut,
    Machines,
    Problem,
    Term,
    alone_s,
    terms,
    total_s,
    waits_for,
)
from tests.benchmarks.scaling import dealt_lines, kind_lines, lines
from tests.support.scaling import INSTANCES, ROWS, expected, kinds, sizing_for

PROBLEM = Problem(rows=10**7, columns=768, k=10, row_s=0.35e-6)
MACHINES = Machines(instances=64, slots=512)
CUT = Cut(block_rows=50_000, tiles=20_100, parts=20_100, part_rows=50_000)
OWNED = replace(CUT, ranges=64, mergers=64)


def by_name(costs):
    return {term.name: term for term in costs}


def of_head(costs):
    return sum(term.seconds for term in costs if term.who == "head")


def of_tasks(costs):
    return sum(term.seconds for term in costs if term.who == "tasks")


def test_a_cut_says_who_merges():
    assert (CUT.way, OWNED.way) == (HEAD, RANGES)
    assert replace(CUT, parts=15, part_rows=10**6, mergers=64).way == GROUPS


def test_each_term_says_who_pays_it():
    head, owned = (by_name(terms(PROBLEM, MACHINES, cut)) for cut in (CUT, OWNED))
    assert head["product"].seconds == 10**14 / 2 * 768 * PRODUCT_S / 512
    assert head["dispatch"].seconds == owned["dispatch"].seconds == 20_100 * PART_S
    assert {(head[name].who, owned[name].who) for name in ("merging", "keys", "writing")} == {("head", "instances")}
    # 64 instances have 64 times the disks and the networks; of the merging, what a part costs by itself comes twice.
    for name in ("keys", "writing"):
        assert owned[name].seconds == pytest.approx(head[name].seconds / 64)
    assert owned["merging"].seconds < head["merging"].seconds / 16
    assert (head["begin"].seconds, head["finish"].seconds) == (0, 0)


def test_what_instances_hand_out_themselves_costs_the_head_a_batch_and_them_their_share():
    alone, dealt = (
        by_name(terms(PROBLEM, MACHINES, replace(OWNED, coming_chunks=10, batches=batches))) for batches in (0, 640)
    )
    assert (alone["dispatch"].seconds, alone["dealing"].seconds) == (20_100 * PART_S, 0)
    assert dealt["dispatch"].seconds == 640 * PART_S
    assert dealt["dealing"].seconds == pytest.approx((20_100 / 64 + 10) * PART_S)
    assert dealt["dealing"].who == "instances"


@pytest.mark.parametrize("kind", ["dense", "dense, shared out"])
def test_the_head_of_512_instances_is_not_waited_for(kind):
    sizing = kinds(512)[kind]
    costs = sizing.expected(sizing.chosen_ranges)
    assert waits_for(costs) == ("tasks", "cores")
    assert by_name(costs)["dispatch"].seconds < 0.5 * of_tasks(costs)


def test_who_works_beside_others_counts_where_he_is_the_slowest():
    costs = [
        Term(name="a", phase="compare", who="tasks", bound="cores", seconds=5),
        Term(name="b", phase="compare", who="head", bound="cores", seconds=2),
        Term(name="c", phase="compare", who="head", bound="cores", seconds=4),
        Term(name="d", phase="compare", who="head", bound="network", seconds=3),
        Term(name="e", phase="gather", who="head", bound="disk", seconds=1),
    ]
    assert total_s(costs) == 7
    assert waits_for(costs) == ("head", "cores")


def test_the_head_was_the_bottleneck_of_ten_million_rows_and_is_none_any_more():
    alone, owned = (sizing_for(10**7, 64).expected(ranges) for ranges in (0, 64))
    assert waits_for(alone) == ("head", "cores")
    assert waits_for(owned) == ("tasks", "cores")
    assert total_s(owned) < 1.02 * of_tasks(owned) + 5 < total_s(alone)


@pytest.mark.parametrize("instances", INSTANCES)
def test_with_the_rows_no_term_of_the_head_grows_faster_than_the_tasks_own(instances):
    grown = defaultdict(list)
    for few, many in zip(ROWS, ROWS[1:], strict=False):
        before, after = (by_name(sizing_for(rows, instances).expected(instances)) for rows in (few, many))
        for name, term in after.items():
            # What does not depend on the rows at all has not grown.
            if term.seconds > before[name].seconds:
                grown[term.who].append(term.seconds / before[name].seconds)
    assert max(grown["head"]) <= 1.05 * max(grown["tasks"])


@pytest.mark.parametrize("instances", INSTANCES)
def test_the_largest_problem_waits_for_its_tasks_alone(instances):
    costs = expected(10**8, instances)
    assert waits_for(costs) == ("tasks", "cores")
    # Half of it where the result is one file, HEAD_SHARE: the head merges beside the tasks then.
    assert of_head(costs) < 0.55 * of_tasks(costs)


def test_rows_are_owned_where_the_head_would_be_waited_for():
    chosen = {name: sizing.chosen_ranges for name, sizing in kinds(64).items()}
    assert chosen == {
        "dense": 64,
        "dense, shared out": 64,
        # In a tenth of the columns that it says they take no longer, so that the head may not be waited for at all.
        "sparse, 100 of 30,000, at most": 0,
        # They have parts of their rows alone, and tiles as large as the head needs them.
        "queries among 1e6 rows": 0,
    }
    assert kinds(512)["sparse, 100 of 30,000, at most"].chosen_ranges == 512


def test_one_instance_owns_nothing_that_the_head_would_not():
    assert {sizing.chosen_ranges for sizing in kinds(1).values()} == {0}


def test_queries_have_parts_of_their_rows_alone_and_every_pair_of_theirs():
    asked = replace(PROBLEM, among=10**6)
    assert (asked.pairs, asked.prepared_rows, asked.sides) == (10**13, 11 * 10**6, 1)
    own, other = (by_name(terms(problem, MACHINES, CUT)) for problem in (PROBLEM, asked))
    assert other["keys"].seconds == pytest.approx(own["keys"].seconds / 2)
    assert other["product"].seconds == pytest.approx(own["product"].seconds / 5)


def test_rows_that_are_shared_out_travel_beside_the_computing():
    costs = terms(PROBLEM, MACHINES, replace(OWNED, coming_bytes=1.25e9 * 5000))
    assert by_name(costs)["travel"].seconds == 5000
    assert waits_for(costs) == ("tasks", "network")


def test_what_is_compared_while_nothing_travels_adds_up_with_the_travelling():
    # Of 100 s each of four instances has 25 s to do with its own rows, beside which the first two chunks come; each of
    # the five that come is 15 s of work, and nothing travels beside the last.
    assert alone_s(5, product_s=100.0, travel_s=50.0, instances=4) == pytest.approx(25 - 20 + 15)
    assert alone_s(1, product_s=100.0, travel_s=10.0, instances=4) == pytest.approx(25 - 10 + 75)
    assert alone_s(5, product_s=100.0, travel_s=500.0, instances=4) == pytest.approx(15)
    assert alone_s(0, product_s=100.0, travel_s=0.0, instances=4) == 0
    few = by_name(terms(PROBLEM, MACHINES, replace(OWNED, coming_bytes=1.25e9, coming_chunks=1)))
    assert few["alone"].seconds == pytest.approx(few["product"].seconds - 1)


def test_the_page_has_the_table_that_the_benchmark_prints():
    page = (Path(__file__).parents[4] / "docs" / "explanation" / "scaling.md").read_text()
    assert "\n".join(lines()) in page
    assert "\n".join(kind_lines()) in page
    assert "\n".join(dealt_lines()) in page
