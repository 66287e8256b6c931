"""What ``raysm train`` takes."""

from tests.support.commands import request_of


def test_a_training_is_asked_for_as_the_readme_says(tmp_path, home):
    (tmp_path / "a.py").write_text("pass")
    asked = request_of(
        "train", str(tmp_path / "a.py"), "--instances", "2", "--workers-per-instance", "4", "--worker-restarts", "3",
        "--input", "train=s3://b/x", "--", "-a", "resnet18", "--epochs", "10", "data/",
    )  # fmt: skip
    assert asked.workload.args == ("-a", "resnet18", "--epochs", "10", "data/")
    assert (
        asked.workload.workers_per_instance,
        asked.workload.max_restarts,
        asked.workload.spawns,
    ) == (4, 3, False)
    assert asked.inputs["train"].uri == "s3://b/x"
    assert asked.limits.max_restarts == 0
