"""What may be asked for: the k most similar rows of each, the pairs above a threshold, or all scores."""

import raysm.workloads.similarity.modes.compute  # noqa: F401
