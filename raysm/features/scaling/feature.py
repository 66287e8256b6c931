"""What the feature adds to raysm."""

from raysm.core.features import Feature

FEATURE = Feature(commands={"scale": "raysm.features.scaling.command_arguments:add_scale"})
