"""A plain model and its optimizer, cut over the ranks of a layout."""
