"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    kinds={
        "torch_script": "raysm.features.training.request:TorchScript",
        "data_parallel": "raysm.features.training.request:TrainLoop",
    },
    names=within("raysm.features.training", client=["DataParallel"], request=["TorchScript"]),
    commands={"train": "raysm.features.training.command_arguments:add_train"},
    views={"sdk_ray": "raysm.features.training.sdk:Ray"},
)
