"""Start a training's workers on the instances of the cluster, watch them, and start them again."""
