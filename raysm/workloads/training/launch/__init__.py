"""Starting a training's workers on the instances of the cluster, watching them, and starting them anew."""
