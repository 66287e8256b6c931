"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    names={
        "Experiment": "raysm.core.client.job.experiment:Experiment",
        **within("raysm.features.experiments", table=["Jobs", "jobs"]),
    },
    views={
        "cache_of_jobs": "raysm.features.experiments.listing:open_cache",
        "complete_tracking": "raysm.features.experiments.tracker:complete_copy",
        "place_of_tracking": "raysm.features.experiments.tracker:resolve_uri",
        "track": "raysm.features.experiments.tracker:get_tracker",
        "shown_meanwhile": "raysm.features.experiments.job_card:show_meanwhile",
        "watch": "raysm.features.experiments.job_card:watch",
        "plot_job": "raysm.features.experiments.plots:plot_job",
    },
    commands={
        "jobs": "raysm.features.experiments.command_arguments:add_jobs",
        "ui": "raysm.features.experiments.command_arguments:add_ui",
    },
)
