"""What every runner uses in the formed cluster: blocks, nodes, gathering, files and reports."""
