"""How long a similarity will take, from a few tiles that are measured before anything is sent."""
