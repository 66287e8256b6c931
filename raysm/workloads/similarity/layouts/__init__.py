"""Where the rows lie, and so which instance compares which of them."""
