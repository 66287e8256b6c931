"""Curves as SVG: ``line_chart`` takes series and returns text; what it is made of stands in the modules."""
