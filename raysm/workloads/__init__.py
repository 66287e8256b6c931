"""The code that the driver runs on the formed cluster: blocks, gathering, and a runner for each kind of workload."""
