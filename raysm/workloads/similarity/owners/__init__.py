"""Who merges and writes the result: each range of its rows has an owner, the head or an instance."""
