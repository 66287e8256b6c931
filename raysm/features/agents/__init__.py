"""What a coding assistant has to know of raysm, for the AGENTS.md of a user's repository."""
