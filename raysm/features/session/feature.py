"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    kinds={"session": "raysm.features.session.request:SessionWorkload"},
    names=within(
        "raysm.features.session",
        client__many_calls=["as_completed", "gather", "progress"],
        client__handle=["Session"],
    ),
    views={"current_session": "raysm.features.session.client.current:current_session"},
    # For IPython: %load_ext raysm.
    hooks=within(
        "raysm.features.session",
        notebook__magics=["load_ipython_extension", "unload_ipython_extension"],
    ),
    commands={
        "session": "raysm.features.session.command_arguments:add_session",
        "exec": "raysm.features.session.command_arguments:add_exec",
    },
)
