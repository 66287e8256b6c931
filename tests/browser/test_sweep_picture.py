"""The picture of a sweep's trials in a real browser."""

import pytest

from raysm.client.sweep import SweepResult
from raysm.contract.events import Trial, Trials
from raysm.contract.result import Manifest

expect = pytest.importorskip("playwright.sync_api").expect

pytestmark = pytest.mark.browser


def sweep_result(folder):
    """A sweep of 24 trials whose loss is least near lr = 0.01, the later ones nearer to it."""
    trials = []
    for number in range(24):
        lr = 10 ** (-4 + 3 * ((number * 7) % 24) / 23) if number < 12 else 0.01 * (1.6 ** ((number % 5) - 2))
        batch = (32, 64)[number % 2]
        loss = 0.08 + abs(lr - 0.01) ** 0.5 + batch / 1600
        trials.append(
            Trial(
                number=number,
                status="stopped" if loss > 0.3 else "done",
                params={"lr": lr, "batch": batch},
                value=loss,
                metrics={"loss": loss},
                time_s=1_800_000_000.0 + number,
            )
        )
    best = min(trials, key=lambda trial: trial.value).number
    Trials(metric="loss", mode="min", trials=tuple(trials), best=best).write(folder)
    manifest = Manifest(job="digits", workload={}, inputs={}, files=(), versions={}, instances=(), phases_s={})
    return SweepResult(folder, manifest)


def test_the_picture_of_a_sweep_has_an_axis_for_each_parameter_and_the_way_to_the_best(page, tmp_path, picture):
    plot = sweep_result(tmp_path).plot()
    page.set_viewport_size({"width": 688, "height": 508})
    page.set_content(f'<body style="background:white;margin:24px;font-family:sans-serif">{plot.svg}</body>')
    for text in ("lr", "batch", "loss", "best", "trials"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible()
    picture(page, "sweep")
