"""A session's driver: a server on the head's loopback, the calls that it takes, and when it ends."""
