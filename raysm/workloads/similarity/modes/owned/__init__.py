"""Results whose rows instances own by ranges: what a mode sends to owners, how they merge it, and the head's side."""
