"""The user's code: scripts, functions, and the modules that travel with them."""
