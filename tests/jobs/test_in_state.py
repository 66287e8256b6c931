"""A script that checkpoints in its working folder, interrupted on spot capacity and by a failure."""

import shutil
from pathlib import Path

import pytest

import raysm
from tests.jobs.test_submit import post, until

pytestmark = pytest.mark.usefixtures("home")

SCRIPT = Path(__file__).parents[1] / "support" / "checkpointing_script.py"


@pytest.fixture
def script(tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "names.txt").write_text("cat dog")
    (tmp_path / "class_names.py").write_text("def parse(text):\n    return text.split()\n")
    shutil.copy(SCRIPT, tmp_path / "main.py")
    return {"script": "main.py", "source_dir": str(tmp_path)}


def texts(job):
    return [line.text for line in job.lines()]


@pytest.mark.long
@pytest.mark.parametrize("kind", [raysm.Script, raysm.TorchScript])
def test_an_interrupted_spot_job_goes_on_from_the_checkpoint_in_its_working_folder(script, home, kind):
    args = ("--resume", "checkpoint.pth.tar", "--pause-at", "2")
    job = raysm.submit(kind(**script, args=args, in_state=True), limits=raysm.Limits(spot=True))
    until(lambda: any("paused" in text for text in texts(job)))
    post(home, f"/raysm/jobs/{job.name}/interrupt")
    job.result(timeout=300)
    said = texts(job)
    assert any("=> loaded checkpoint 'checkpoint.pth.tar' (epoch 2)" in text for text in said), said
    assert sum("epoch 0 done" in text for text in said) == 1
    assert any("labels: ['cat', 'dog']" in text for text in said)


@pytest.mark.long
def test_without_it_the_lost_checkpoint_is_named_and_with_it_resume_finds_it(script):
    lost = raysm.submit(raysm.Script(**script, args=("--epochs", "1")), name="lost")
    lost.wait(timeout=300)
    assert any("working folder of algo-1 are lost now: checkpoint.pth.tar" in text for text in texts(lost))
    for run in (1, 2):
        workload = raysm.Script(
            **script, args=("--epochs", str(run), "--resume", "{state}/checkpoint.pth.tar"), in_state=True
        )
        job = raysm.submit(workload, name="kept", resume=run == 2)
        assert job.wait(timeout=300) == "Completed", texts(job)
    assert any("(epoch 1)" in text for text in texts(job))
    assert not any("are lost now" in text for text in texts(job))
