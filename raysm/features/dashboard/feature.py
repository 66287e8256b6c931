"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    # For Ray, which looks for them where an address begins with raysm://.
    hooks=within(
        "raysm.features.dashboard",
        address=["ClientBuilder", "get_job_submission_client_cluster_info"],
    ),
    views={
        "access_on_aws": "raysm.features.dashboard.tunnel.plugin:PluginAccess",
        "open_dashboard": "raysm.features.dashboard.dashboard:open_dashboard",
        "open_tunnel": "raysm.features.dashboard.tunnel.access:open_tunnel",
        "read_stacks": "raysm.features.dashboard.stacks:read_stacks",
        "session_commands": "raysm.features.dashboard.tunnel.access:session_commands",
        "switch_remote_debugging": "raysm.features.dashboard.tunnel.access:switch_remote_debugging",
    },
    commands={
        "dashboard": "raysm.features.dashboard.command_arguments:add_dashboard",
        "shell": "raysm.features.dashboard.command_arguments:add_shell",
        "stacks": "raysm.features.dashboard.command_arguments:add_stacks",
        "tunnel": "raysm.features.dashboard.command_arguments:add_tunnel",
    },
)
