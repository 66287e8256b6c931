"""A grid in a file: what it says of itself, and the options of its jobs."""

import pytest

from raysm.client.settings import Settings
from raysm.errors import InvalidRequest
from raysm.grid.grid_file import read_grid_file
from raysm.grid.rules import Rules

DRIVES = """
script = "train.py"
args = ["--lr", "{lr}"]
regions = ["us-east-1", "eu-central-1"]
instance_type = ["ml.p4d.24xlarge", "ml.g6e.48xlarge"]
count = 10
spot = true
max_rows = 50
[rows]
sql = "SELECT campaign AS key, lr FROM drives WHERE day >= :since"
on = "env:CAMPAIGNS_URL"
params = { since = "2026-10-01" }
[rules]
budget_usd = 5000
retries = 3
[limits]
max_runtime_s = 3600
[inputs]
data = "s3://bucket-{region}/{key}"
"""


def read(tmp_path, text, name="drives.toml"):
    path = tmp_path / name
    path.write_text(text)
    return read_grid_file(path)


def test_a_file_says_which_batch_job_is_to_run_its_grid(tmp_path):
    file = read(tmp_path, 'script = "train.py"\n[batch]\njob_queue = "controllers"\njob_role = "arn"\n')
    assert file.batch == {"job_queue": "controllers", "job_role": "arn"}
    assert read(tmp_path, 'script = "train.py"\n[batch]\nassign_public_ip = true\n').batch == {"assign_public_ip": True}
    with pytest.raises(InvalidRequest, match=r"batch.assign_public_ip"):
        read(tmp_path, 'script = "train.py"\n[batch]\nassign_public_ip = "yes"\n')
    with pytest.raises(InvalidRequest, match=r"\[batch\] has no 'queue'; it has job_queue"):
        read(tmp_path, 'script = "train.py"\n[batch]\nqueue = "controllers"\n')


def test_the_whole_file_is_a_grid_and_the_options_of_its_jobs(tmp_path):
    file = read(tmp_path, DRIVES)
    assert (file.name, file.regions, file.count, file.markets) == ("drives", ("us-east-1", "eu-central-1"), 10, (True,))
    assert file.instance_types == ("ml.p4d.24xlarge", "ml.g6e.48xlarge")
    assert file.rules == Rules(budget_usd=5000, retries=3)
    assert file.max_rows == 50
    assert file.source.query.params == {"since": "2026-10-01"}
    settings = Settings([file.layer])
    assert settings.workload().args == ("--lr", "{lr}")
    # From wherever the command is given.
    assert settings.workload().script == str(tmp_path / "train.py")
    assert settings.options()["limits"].max_runtime_s == 3600
    assert settings.options()["inputs"]["data"].uri == "s3://bucket-{region}/{key}"


def test_one_type_is_a_text_and_rows_may_be_a_file_beside_it(tmp_path):
    file = read(tmp_path, 'script = "a.py"\ninstance_type = "ml.g5.xlarge"\nrows = "rows.csv"\n')
    assert file.instance_types == ("ml.g5.xlarge",)
    assert file.source.path == tmp_path / "rows.csv"
    assert (file.rules, file.markets, file.count, file.max_rows) == (None, None, None, None)


def test_a_mark_of_byte_order_is_no_part_of_the_file(tmp_path):
    assert read(tmp_path, '\ufeffname = "n"\r\nscript = "a.py"\r\n').name == "n"


def test_another_workload_is_written_out(tmp_path):
    file = read(tmp_path, 'name = "n"\nscript = "a.py"\n[workload]\nkind = "torch_script"\n[rows]\nfile = "r.csv"\n')
    assert (file.name, type(Settings([file.layer]).workload()).__name__) == ("n", "TorchScript")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("script = ", "drives.toml cannot be read"),
        ("nonsense = 1", "there is no option nonsense"),
        ("count = 'x'", "count: expected an integer|count: expected"),
        ("[rules]\nbuget = 1", "rules: unknown key 'buget'"),
        ("[rows]\nfiles = 'a.csv'", r"\[rows\] has no 'files'"),
        ("[rows]\nfile = 'a.csv'\nsql = 'SELECT 1'", "either a file or a query"),
        ("[rows]\nsql = 'SELECT 1'", "a query and no database"),
        ("rows = 3", "rows is a table"),
        ("rows = 'a.xlsx'", "is not a source of rows"),
        ("regions = [1]", r"regions\[0\]: expected"),
        ("[limits]\nmax_runtime = 3", "did you mean limits.max_runtime_s"),
    ],
)
def test_what_cannot_be_is_refused_with_the_file_and_the_key(tmp_path, text, message):
    with pytest.raises(InvalidRequest, match=message):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(InvalidRequest, match="No such file"):
        read_grid_file(tmp_path / "none.toml")
