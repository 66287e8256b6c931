"""What the feature adds to raysm."""

from raysm.core.features import Feature

FEATURE = Feature(commands={"migrate": "raysm.features.migrate.command_arguments:add_migrate"})
