"""The client's half of a session: the handle, its calls, and the connection to the head."""
