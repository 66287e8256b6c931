"""An inverted file: rows in cells of similar ones, so that a row is compared with the members of a few cells alone.

What is found is not all there is, so it stands aside of the exact modes and is used only where a recall is asked for;
the scores are those of the definition all the same, since the exact engines compare what lies in the cells.
"""
