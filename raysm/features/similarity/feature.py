"""What the feature adds to raysm."""

from raysm.core.features import Feature, within

FEATURE = Feature(
    kinds={"similarity": "raysm.features.similarity.request:Similarity"},
    names=within("raysm.features.similarity", request=["Similarity"], result=["SimilarityResult"]),
    commands={
        "demo": "raysm.features.similarity.command_arguments:add_demo",
        "similarity": "raysm.features.similarity.command_arguments:add_similarity",
    },
)
