"""``raysm.Grid``: planned, run, gone on with and looked at; against the client's own fake of AWS."""

import pytest

import raysm
from raysm.core.client.costs.prices import RegionPrices, save_prices
from raysm.errors import InvalidRequest
from raysm.features.grid.client.grid import Grid
from raysm.features.grid.client.handle import attach_grid, experiments_of
from raysm.features.grid.row import Row, RowState
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store, path_of
from raysm.testing import FakeSageMaker
from tests.support.campaigns import ended
from tests.support.homes import in_home
from tests.support.memory_folder import memory_folder
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
    [({"region": REGION}, "'region'.*regions"), ({"rows": 7}, "rows=7")],
    ids=["misspelt", "rows"],
)
def test_what_cannot_be_is_said_in_the_line_that_has_it(script, options, message):
    with pytest.raises(InvalidRequest, match=message):
        grid_of(script, **{"rows": [{"key": "a", "lr": 1}]} | options)


def test_the_plan_reads_the_rows_and_sends_nothing(script, fake):
    plan = grid_of(script, [{"key": "a", "lr": 1, "expected_s": 3600}], on=fake).plan()
    # With its volume of 30 GB.
    assert plan.usd == pytest.approx((2.0063, 2.0063), abs=1e-4)
    assert str(plan).startswith("grid train: 1 row, nothing is sent")
    assert fake.submitted == []


def test_a_row_becomes_a_job_and_the_same_grid_again_sends_nothing(script, fake):
    looks = []
    end = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake).run(seen=looks.append)
    assert (end.state, end.states, fake.submitted[0].request["TrainingJobName"][-3:]) == (
        "closed",
        {"done": 1},
        "-a1",
    )
    assert looks[0].name == "train"
    again = grid_of(script, [{"key": "a", "lr": 0.5}], on=fake)
    assert again.run().states == {"done": 1}
    assert len(fake.submitted) == 1
    (row,) = again.rows()
    assert (row.state, row.region, row.instance_type, row.parameters) == (
        "done",
        REGION,
        TYPE,
        {"lr": 0.5},
    )


def brightness(batch, scale=1.0):
    return {"brightness": [scale] * len(batch["file"])}


def batch_grid(rows, fake, workload=None, **options):
    workload = workload or raysm.Batch(brightness, batch_size=8, read="images")
    return Grid(
        workload, rows=rows, **{"instance_type": TYPE, "regions": (REGION,), "on": fake} | options
    )


def test_what_is_pickled_is_pickled_once_and_a_job_of_each_row_has_it_with_its_own_input(fake):
    pickles = []

    class Counted(raysm.Batch):
        def pickled(self):
            pickles.append(super().pickled())
            return pickles[-1]

    workload = Counted(brightness, batch_size=8, read="images", arguments={"scale": 2.0})
    grid = batch_grid(
        [{"key": key, "input_images": f"s3://{key}/images"} for key in "ab"], fake, workload
    )
    assert (grid.name, grid.run().states) == ("brightness", {"done": 2})
    sent = sorted(channel["DataSource"]["S3DataSource"]["S3Uri"] for plan in fake.submitted
                  for channel in plan.request["InputDataConfig"] if channel["ChannelName"] == "images")  # fmt: skip
    assert sent == ["s3://a/images", "s3://b/images"]
    assert len(pickles) == 1


def test_who_mends_the_model_goes_on_with_the_same_grid_and_another_batch_size_is_another_grid(
    fake,
):
    rows = [{"key": "a", "input_images": "s3://a/images"}]
    batch_grid(rows, fake).run()

    def mended(batch, scale=1.0):
        return {"brightness": [2 * scale] * len(batch["file"])}

    mended.__qualname__ = "brightness"
    again = batch_grid(
        rows, fake, raysm.Batch(mended, batch_size=8, read="images"), name="brightness"
    )
    assert (again.run().states, len(fake.submitted)) == ({"done": 1}, 1)
    with pytest.raises(InvalidRequest, match="batch_size.*8.*9"):
        batch_grid(rows, fake, raysm.Batch(brightness, batch_size=9, read="images")).run()


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([{"key": "a"}], {}, r"row 1 \(a\).*0 inputs.*input_NAME"),
        ([{"key": "a", "input_images": "s3://a", "input_masks": "s3://b"}], {}, "2 inputs"),
        (
            [{"key": "a", "input_images": "s3://a"}],
            {"arguments": {"scale": "{region}"}},
            "'scale' of .*brightness has {region}",
        ),
    ],
    ids=["no input", "two inputs", "braces"],
)
def test_a_row_that_could_not_be_predicted_is_refused_by_the_plan(fake, rows, options, message):
    with pytest.raises(InvalidRequest, match=message):
        batch_grid(rows, fake, raysm.Batch(brightness, batch_size=8, **options)).plan()
    assert fake.submitted == []


@pytest.fixture(scope="module")
def bench():
    with memory_folder() as home, in_home(home):
        folder = path_of("g").parent
        folder.mkdir(parents=True)
        bench = ended(folder)
        yield bench
        bench.store.close()


def test_each_row_has_its_last_job_with_its_place_its_rate_and_its_dollars(bench):
    rows = {row.task: row for row in experiments_of(bench.store)}
    assert len(rows) == 12
    first = rows["campaign-000"]
    assert (first.status, first.parameters["region"]) == ("Completed", "us-east-1")
    assert first.instances == (("ml.p4d.24xlarge", 1),)
    assert first.metrics["images_per_s"].last == 6_000.0
    books = sum(region.usd() for region in bench.regions.values())
    assert sum(row.cost_usd for row in rows.values()) == pytest.approx(books)
    assert first.duration_s > 0


def test_the_table_of_experiments_knows_grids_and_sorts_and_filters_them(bench):
    jobs = raysm.jobs(grid="g")
    assert [row.cost_usd for row in jobs.sorted_by("-cost_usd")] == sorted(
        (row.cost_usd for row in jobs), reverse=True
    )
    assert [row.task for row in raysm.jobs(grid="g", status="failed")] == ["campaign-006"]
    assert len(raysm.jobs(grid="g", limit=5)) == 5
    assert "us-west-2" in jobs._repr_html_()


@pytest.fixture
def store(tmp_path):
    with in_home(tmp_path):
        path_of("drives").parent.mkdir(parents=True)
        store = Store(path_of("drives"))
        store.make("drives", rules=Rules(), now=0.0)
        store.add([Row(key=key, position=place) for place, key in enumerate("abc")])
        with store.database.transaction("test", fenced=False):
            store.rows.move("a", RowState.WAITING, RowState.DONE, 1.0)
            store.rows.move(
                "b", RowState.WAITING, RowState.FAILED, 1.0, reason="exit code: 1 & <b>"
            )
        yield store
        store.database.close()


def test_its_rows_and_its_state_are_what_the_store_has(store):
    grid = attach_grid("drives")
    assert [(row.key, row.state) for row in grid.rows()] == [
        ("a", "done"),
        ("b", "failed"),
        ("c", "waiting"),
    ]
    assert [row.key for row in grid.rows("failed")] == ["b"]
    assert grid.status().states == {"done": 1, "failed": 1, "waiting": 1}
    with pytest.raises(InvalidRequest, match="state.*'lost'"):
        grid.rows("lost")


def test_what_is_wished_is_found_by_whoever_runs_it(store):
    grid = attach_grid("drives")
    assert grid.retry() == 1
    assert store.rows.states() == {"done": 1, "waiting": 2}
    assert grid.extend([{"key": "c"}, {"key": "d"}]) == 1
    assert grid.stop().open == 0
    assert store.grid().state == "closed"


def test_a_report_has_what_failed_first_and_markup_as_text(store, tmp_path):
    path = attach_grid("drives").report(tmp_path / "out.html")
    text = path.read_text()
    assert text.index("<td>b</td>") < text.index("<td>c</td>") < text.index("<td>a</td>")
    assert "exit code: 1 &amp; &lt;b&gt;" in text
