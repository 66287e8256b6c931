"""``raysm.Grid``: planned, run, gone on with and looked at; against the client's own fake of AWS."""

import pytest

import raysm
from raysm.client.costs.prices import RegionPrices, save_prices
from raysm.errors import InvalidRequest
from raysm.testing import FakeSageMaker
from raysm.views.grid.grid import Grid
from tests.support.homes import in_home
from tests.support.sagemaker import REGION, aws

TYPE = "ml.m5.large"


@pytest.fixture
def fake(tmp_path):
    with in_home(tmp_path / "home"):
        save_prices(RegionPrices(region=REGION, as_of="2026-11-01", version="v1", usd={TYPE: 2.0}))
        yield FakeSageMaker(tmp_path / "home")


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("print(1)\n")
    return str(path)


def grid_of(script, rows, **options):
    options = {"instance_type": TYPE, "regions": (REGION,), "on": aws()} | options
    return Grid(raysm.Script(script, args=("--lr", "{lr}")), rows=rows, **options)


def test_type_and_count_are_the_clusters_where_none_are_given(script):
    cluster = raysm.Cluster("ml.p4d.24xlarge", count=10, volume_gb=100)
    request = raysm.Grid(script, rows=[{"key": "a"}], cluster=cluster, on=aws()).request
    assert (request.instance_types, request.count) == (("ml.p4d.24xlarge",), 10)
    assert raysm.Grid(script, rows=[{"key": "a"}], on=aws()).request.instance_types == ()
    assert raysm.Grid(script, rows=[{"key": "a"}]).request.instance_types == ("local",)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"region": REGION}, "takes no option 'region'; did you mean regions"), ({"rows": 7}, "is not a source of rows")],
    ids=["misspelt", "rows"],
)
def test_what_cannot_be_is_said_in_the_line_that_has_it(script, options, message):
    with pytest.raises(InvalidRequest, match=message):
        grid_of(script, **{"rows": [{"key": "a", "lr": 1}]} | options)


def test_the_plan_reads_the_rows_and_sends_nothing(script, fake):
    plan = grid_of(script, [{"key": "a", "lr": 1, "expected_s": 3600}], on=fake).plan()
    assert plan.usd == (2.0, 2.0)
    assert str(plan).startswith("grid train: 1 row, nothing is sent")
    assert fake.submitted == []


def test_a_row_becomes_a_job_and_the_same_grid_again_sends_nothing(script, fake):
    looks = []
    end = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake).run(seen=looks.append)
    assert (end.state, end.states, fake.submitted[0].request["TrainingJobName"][-3:]) == ("closed", {"done": 1}, "-a1")
    assert looks[0].name == "train"
    again = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake)
    assert again.run().states == {"done": 1}
    assert len(fake.submitted) == 1
    (row,) = again.rows()
    assert (row.state, row.region, row.instance_type, row.parameters) == ("done", REGION, TYPE, {"lr": 0.5})


def brightness(batch, scale=1.0):
    return {"brightness": [scale] * len(batch["file"])}


def batch_grid(rows, fake, workload=None, **options):
    workload = workload or raysm.Batch(brightness, batch_size=8, read="images")
    return Grid(workload, rows=rows, **{"instance_type": TYPE, "regions": (REGION,), "on": fake} | options)


def test_what_is_pickled_is_pickled_once_and_a_job_of_each_row_has_it_with_its_own_input(fake):
    pickles = []

    class Counted(raysm.Batch):
        def pickled(self):
            pickles.append(super().pickled())
            return pickles[-1]

    workload = Counted(brightness, batch_size=8, read="images", arguments={"scale": 2.0})
    grid = batch_grid([{"key": key, "input_images": f"s3://{key}/images"} for key in "ab"], fake, workload)
    assert (grid.name, grid.run().states) == ("brightness", {"done": 2})
    sent = sorted(channel["DataSource"]["S3DataSource"]["S3Uri"] for plan in fake.submitted
                  for channel in plan.request["InputDataConfig"] if channel["ChannelName"] == "images")  # fmt: skip
    assert sent == ["s3://a/images", "s3://b/images"]
    assert len(pickles) == 1


def test_who_mends_the_model_goes_on_with_the_same_grid_and_another_batch_size_is_another_grid(fake):
    rows = [{"key": "a", "input_images": "s3://a/images"}]
    batch_grid(rows, fake).run()

    def mended(batch, scale=1.0):
        return {"brightness": [2 * scale] * len(batch["file"])}

    mended.__qualname__ = "brightness"
    again = batch_grid(rows, fake, raysm.Batch(mended, batch_size=8, read="images"), name="brightness")
    assert (again.run().states, len(fake.submitted)) == ({"done": 1}, 1)
    with pytest.raises(InvalidRequest, match="another script, arguments or options"):
        batch_grid(rows, fake, raysm.Batch(brightness, batch_size=9, read="images")).run()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"key": "a"}], {}, r"row 1 \(a\): Batch: the job has 0 inputs; .*input_NAME"),
        ([{"key": "a", "input_images": "s3://a", "input_masks": "s3://b"}], {}, "the job has 2 inputs; say which one"),
        (
            [{"key": "a", "input_images": "s3://a"}],
            {"arguments": {"scale": "{region}"}},
            "'scale' of .*brightness has {region}, but a pickled workload is the same for all rows",
        ),
    ],
    ids=["no input", "two inputs", "braces"],
)
def test_a_row_that_could_not_be_predicted_is_refused_by_the_plan(fake, rows, options, message):
    with pytest.raises(InvalidRequest, match=message):
        batch_grid(rows, fake, raysm.Batch(brightness, batch_size=8, **options)).plan()
    assert fake.submitted == []
