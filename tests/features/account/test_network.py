"""The network between instances, as ``raysm doctor --run --network`` measures and judges it."""

import io
import itertools
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console

from raysm.cli.arguments import parse
from raysm.core.client.targets.local import ensure_server
from raysm.errors import InvalidRequest
from raysm.features.account.doctor_command import GOOD, print_network, run
from raysm.features.account.network_probe import joined, rounds, usual_bandwidth, verdict, why_gloo
from raysm.local.instances.network import RANGES
from tests.support import namespaces
from tests.support.pages import outputs


def pairs_of(count, **gb_per_s):
    """Return the pairs of instances at 2 GB/s, but for those that are named, ``algo1_algo3=0.1``."""
    hosts = [f"algo-{number + 1}" for number in range(count)]
    return [
        {
            "instances": [one, other],
            "bytes_per_s": 1e9 * gb_per_s.get(f"{one}_{other}".replace("-", ""), 2.0),
        }
        for one, other in itertools.combinations(hosts, 2)
    ]


@pytest.mark.parametrize("count", [2, 3, 8, 9, 32])
def test_each_pair_is_measured_once_and_no_instance_is_in_two_pairs_at_once(count):
    hosts = [f"algo-{number + 1}" for number in range(count)]
    played = list(rounds(hosts))
    pairs = [frozenset(pair) for together in played for pair in together]
    assert len(pairs) == len(set(pairs)) == count * (count - 1) / 2
    assert all(len(set(itertools.chain(*together))) == 2 * len(together) for together in played)
    # Few instances may share the processors of one machine.
    assert (max(map(len, played)) == 1) is (count <= 8)


def test_pair_that_stands_out_is_named_with_its_share():
    assert verdict(pairs_of(3, algo2_algo3=0.1)) == (
        "the slowest pair is algo-2 and algo-3 with 0.1 GB/s, 5% of the usual 2 GB/s: it stands out"
    )


def test_slowest_pair_of_even_ones_does_not_stand_out():
    assert verdict(pairs_of(4, algo1_algo4=1.5)).endswith(
        "75% of the usual 2 GB/s: it does not stand out"
    )


def test_instance_whose_pairs_are_all_slow_is_named():
    slow = dict.fromkeys(("algo1_algo3", "algo2_algo3"), 0.2)
    # Two of three pairs are slow: their bandwidth is not the usual one.
    assert verdict(pairs_of(3, **slow)).endswith(
        "10% of the usual 2 GB/s: it stands out; all 2 slow pairs have algo-3 in common"
    )


def test_several_slow_pairs_without_a_common_instance_are_counted():
    slow = dict.fromkeys(("algo1_algo2", "algo3_algo4"), 0.2)
    assert verdict(pairs_of(4, **slow)).endswith("it stands out, as do 1 others")


def test_only_pair_has_nothing_to_be_compared_with():
    assert "nothing to compare it with" in verdict(pairs_of(2))


def test_usual_bandwidth_is_that_of_the_faster_half():
    assert usual_bandwidth([1.0, 9.0, 10.0, 2.0]) == 10.0
    assert usual_bandwidth([5.0]) == 5.0


def test_table_has_the_slowest_pairs_of_many_instances():
    found = {
        "backend": "nccl",
        "gpus": 8,
        "why_gloo": "",
        "missing": ["algo-13"],
        "all_reduce_bytes_per_s": 1.5e9,
        "pairs": sorted(pairs_of(12, algo1_algo9=0.1), key=lambda pair: pair["bytes_per_s"]),
    }
    out = io.StringIO()
    print_network(Console(file=out, width=120), found)
    lines = out.getvalue().splitlines()
    assert re.fullmatch(r"algo-1 algo-9 +0\.1 +5%", lines[1].strip())
    assert "46 faster pairs" in out.getvalue()
    assert "all-reduce of all instances (nccl, 8 GPUs of each): 1.5 GB/s" in lines
    assert "not measured, since they did not join: algo-13" in lines
    assert "gloo" not in out.getvalue()


def node(host, gpus=0, alive=True):
    return {
        "Labels": {"raysm.io/host": host},
        "Resources": {"GPU": gpus} if gpus else {},
        "Alive": alive,
    }


def test_instances_that_did_not_join_are_named_and_the_others_measured():
    nodes = [node("algo-3"), node("algo-1", gpus=4.0), node("algo-2", alive=False)]
    hosts = ["algo-1", "algo-2", "algo-3", "algo-4"]
    assert joined(hosts, nodes) == ({"algo-1": 4, "algo-3": 0}, ["algo-2", "algo-4"])


def test_instances_without_gpus_are_the_reason_for_gloo():
    assert why_gloo({"algo-1": 8, "algo-2": 8}) == ""
    assert why_gloo({"algo-1": 8, "algo-2": 0}) == "no GPU is on algo-2"
    assert why_gloo({"algo-1": 0, "algo-2": 0}) == "no instance has a GPU"


def test_page_shows_what_is_printed():
    rates = {("algo-2", "algo-3"): 0.0238e9, ("algo-1", "algo-2"): 1.62e9}
    rates[("algo-1", "algo-3")] = 1.91e9
    found = {
        "backend": "gloo",
        "gpus": 0,
        "why_gloo": "no instance has a GPU",
        "missing": [],
        "all_reduce_bytes_per_s": 0.162e9,
        "pairs": [{"instances": list(pair), "bytes_per_s": each} for pair, each in rates.items()],
    }
    out = io.StringIO()
    print_network(Console(file=out, width=120), found)
    printed = [line.rstrip() for line in out.getvalue().splitlines()]
    assert outputs("guides/training-speed.md")[1].splitlines() == printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--network",), "add --run"),
        (("--run", "--network", "--instances", "1"), "one instance has no network"),
    ],
)
def test_network_that_cannot_be_measured_is_refused(words, said):
    with pytest.raises(InvalidRequest, match=said):
        run(parse(["doctor", *words]), Console(file=io.StringIO()))


class Sent(Exception):
    """The checks let a job through."""


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("process", InvalidRequest), ("namespace", InvalidRequest), ("docker", Sent)],
)
def test_torch_of_this_machine_is_needed_only_where_instances_run_its_python(
    kind, ending, monkeypatch
):
    def connect(target):
        raise Sent

    monkeypatch.setitem(sys.modules, "torch", None)
    words = ("--run", "--network", "--set", f"local.instance_kind={kind}")
    with pytest.raises(ending):
        run(parse(["doctor", *words]), Console(file=io.StringIO()), connect)


def keepers(owner):
    """Return the processes in the networks of the instances of a server, by instance."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        named = re.fullmatch(rf"(algo-\d+), owner {owner}", words[-2].decode() if words[1:] else "")
        if named and any(word.endswith(b"keeper.py") for word in words):
            found[named[1]] = path.parent.name
    return found


def in_network(process, command):
    done = subprocess.run(
        ["nsenter", "--target", process, "--net", *command.split()], capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else None


def slow_down(owner, one, other, ended):
    """Let an instance send to another one with 100 Mbit/s only; return whether it does."""
    while not ended.wait(0.1):
        networks = keepers(owner)
        if not {one, other} <= networks.keys():
            continue
        shown = in_network(networks[other], "ip -4 -oneline address show eth0")
        # Until it has a network of its own, it is in this machine's.
        address = re.search(rf"inet ((?:{'|'.join(RANGES)})\.[\d.]+)/", shown or "")
        if address is None:
            continue
        commands = (
            "qdisc add dev eth0 root handle 1: htb default 10",
            "class add dev eth0 parent 1: classid 1:10 htb rate 100gbit quantum 60000",
            "class add dev eth0 parent 1: classid 1:20 htb rate 100mbit quantum 60000",
            "filter add dev eth0 parent 1: protocol ip u32 "
            f"match ip dst {address[1]}/32 flowid 1:20",
        )
        return all(in_network(networks[one], f"tc {each}") is not None for each in commands)
    return False


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pair_of_instances_with_a_slow_link_is_found(home, capsys):
    if reason := namespaces.why_not():
        pytest.skip(reason)
    pytest.importorskip("torch")
    owner = ensure_server(home).pid
    ended = threading.Event()
    slowed = []
    slowing = threading.Thread(
        target=lambda: slowed.append(slow_down(owner, "algo-2", "algo-3", ended))
    )
    slowing.start()
    words = ("--set", f"local.home={home}", "--set", "local.instance_kind=namespace")
    out = io.StringIO()
    try:
        code = run(
            parse(["doctor", "--run", "--network", "--instances", "3", *words]),
            Console(file=out, width=200),
        )
    finally:
        ended.set()
        slowing.join()
    if slowed == [False]:
        pytest.skip("this kernel limits no bandwidth: tc has no htb or u32")
    printed = out.getvalue() + capsys.readouterr().out
    assert code == GOOD
    assert "all-reduce of all instances (gloo, one process of each)" in printed
    (sentence,) = re.findall(r"the slowest pair is .*", printed)
    assert sentence.startswith("the slowest pair is algo-2 and algo-3 with 0.0")
    assert "it stands out" in sentence
