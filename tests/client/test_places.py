"""Where the things of a job lie."""

from raysm.client.storage.places import places_in

AWS = places_in("b", lambda root: root)
HERE = places_in("b", lambda root: "file:///home/data")


def test_on_aws_everything_lies_below_one_prefix():
    assert AWS.root == AWS.data == "s3://b/raysm"


def test_of_this_machine_only_what_is_small_lies_in_the_bucket():
    assert HERE.payload("p", "j") == "s3://b/raysm/payloads/p/j"
    assert HERE.inputs() == "s3://b/raysm/inputs"
    for prefix in (HERE.outputs("p"), HERE.state("p", "t", "j"), HERE.records("p", "t")):
        assert prefix.startswith("file:///home/data/p")


def test_no_two_things_of_a_task_lie_below_each_other():
    prefixes = [f"{prefix}/" for prefix in (AWS.payload("p", "j"), AWS.state("p", "t", "j"), AWS.records("p", "t"))]
    assert not [(one, other) for one in prefixes for other in prefixes if one != other and one.startswith(other)]


def test_no_prefix_ends_with_a_slash_to_which_another_one_would_be_added():
    prefixes = (AWS.payload("p", "j"), AWS.outputs("p"), AWS.state("p", "t", "j"), AWS.records("p", "t"), AWS.inputs())
    assert not [prefix for prefix in prefixes if prefix.endswith("/")]
