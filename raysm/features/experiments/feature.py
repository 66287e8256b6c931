"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    names=within("raysm.features.experiments", experiment=["Experiment"], table=["Jobs", "jobs"]),
    views={
        "shown_meanwhile": "raysm.features.experiments.card.live_card:shown_meanwhile",
        "watch": "raysm.features.experiments.card.live_card:watch",
        "session_card": "raysm.features.experiments.card.job_card:session_card",
        "plot_job": "raysm.features.experiments.plots:plot_job",
        "plot_sweep": "raysm.features.experiments.plots:plot_sweep",
    },
)
