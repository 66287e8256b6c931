"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    kinds={"batch": "raysm.features.batch.request:BatchInference"},
    names=within("raysm.features.batch", result=["Batch", "BatchResult"]),
)
