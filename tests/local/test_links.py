"""Links of an instance, followed from outside of it."""

from pathlib import Path

from raysm.local.channels import relink

INSIDE = Path("/opt/ml")


def test_a_link_to_what_the_instance_called_opt_ml_leads_to_where_that_lies(tmp_path):
    model = tmp_path / "model"
    (model / "step-1").mkdir(parents=True)
    (model / "step-1" / "shard").write_text("weights")
    (model / "last").symlink_to("/opt/ml/model/step-1")
    (model / "deep").mkdir()
    (model / "deep" / "link").symlink_to("/opt/ml/model/step-1/shard")
    relink(tmp_path, INSIDE)
    assert (model / "last" / "shard").read_text() == (model / "deep" / "link").read_text() == "weights"


def test_every_other_link_stays_as_it_is(tmp_path):
    links = {
        "relative": "step-1",
        "elsewhere": "/opt/ml-2/model",
        "out": "/opt/ml/../../etc/passwd",
        "nowhere": "/no/such/file",
    }
    (tmp_path / "model").mkdir()
    (tmp_path / "input" / "data").mkdir(parents=True)
    for name, target in links.items():
        (tmp_path / "model" / name).symlink_to(target)
    (tmp_path / "input" / "data" / "given").symlink_to("/opt/ml/model")
    relink(tmp_path, INSIDE)
    assert {name: str((tmp_path / "model" / name).readlink()) for name in links} == links
    assert str((tmp_path / "input" / "data" / "given").readlink()) == "/opt/ml/model"
