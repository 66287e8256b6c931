"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    names=within(
        "raysm.features.grid",
        batch_job__controller_job=["ControllerJob"],
        row_view=["GridRow"],
        sources__databases=["Query"],
        shards=["shards"],
        rules=["Rules"],
        client__grid=["Grid"],
        client__handle=["GridHandle", "attach_grid"],
    ),
    commands={
        "grid": "raysm.features.grid.command_arguments:add_grid",
        "quotas": "raysm.features.grid.command_arguments:add_quotas",
    },
    views={"run_about_grid": "raysm.features.grid.local_grids:refuse_grid"},
    rows={"grid": "raysm.features.grid.client.handle:rows_of_grids"},
)
