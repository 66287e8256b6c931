"""The arguments of ``raysm agents``."""

from typing import Any

from raysm.cli.parser import Family, add_command


def add_agents(commands: Any) -> None:
    add_command(
        commands,
        "agents",
        "print what a coding assistant has to know of raysm, for your AGENTS.md",
        run="raysm.features.agents.command:run",
        family=Family.SETUP,
        examples="# raysm agents >> AGENTS.md appends it to the file\nraysm agents",
    )
