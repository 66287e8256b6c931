"""What the feature adds to raysm."""

from raysm.core.features import Feature

FEATURE = Feature(commands={"agents": "raysm.features.agents.command_arguments:add_agents"})
