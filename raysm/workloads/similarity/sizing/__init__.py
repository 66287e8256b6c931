"""How large tiles, blocks and groups are, and how much room what is made of them needs."""
