"""A session's driver: a server on the head's loopback, the calls it takes, and when it ends."""
