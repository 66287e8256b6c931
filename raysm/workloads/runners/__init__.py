"""One runner for each kind of workload, named by the kind itself: what the driver does once the cluster is formed."""
