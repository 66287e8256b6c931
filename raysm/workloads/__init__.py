"""What runs on the formed cluster: the driver, share-nothing blocks, the gathering, and the ready-made workloads."""
