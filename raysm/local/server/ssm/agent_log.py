"""What an agent writes into its own log stream: what flows in are the job's and the scenario's wishes."""

from raysm.local.scenario import Scenario

__all__ = ["agent_lines"]

CONNECTED = "amazon-ssm-agent: the control channel is open"
COMPLAINS = (
    "amazon-ssm-agent: AccessDeniedException: the role is not authorized to perform ssmmessages:OpenControlChannel"
)
"""What it writes where a role lacks its four permissions, as most do."""


def agent_lines(scenario: Scenario, *, remote_debug: bool) -> list[str]:
    """Return the agent's lines at the start of an instance; none where it is not started.

    Args:
        scenario: What the role may, and whether every instance has such a stream.
        remote_debug: Whether the job asks for its agent.
    """
    if not (remote_debug or scenario.logs.ssm_streams):
        return []
    # The switch for streams is there to have somebody complain: without remote debugging no agent can connect.
    return [CONNECTED if remote_debug and scenario.ssm.permitted else COMPLAINS]
