"""What the feature adds to raysm."""

from raysm.core.features import Feature

FEATURE = Feature(
    commands={
        "doctor": "raysm.features.account.command_arguments:add_doctor",
        "image": "raysm.features.account.command_arguments:add_image",
        "prices": "raysm.features.account.command_arguments:add_prices",
    },
)
