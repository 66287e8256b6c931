"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    kinds={
        "script": "raysm.features.script.request:Script",
        "function": "raysm.features.script.request:PickledFunction",
    },
    names=within("raysm.features.script", client=["Function", "remote"], request=["Script"]),
    commands={"run": "raysm.features.script.command_arguments:add_run"},
    views={
        "script": "raysm.features.script.request:Script",
        "wrap_function": "raysm.features.script.client:Function",
    },
)
