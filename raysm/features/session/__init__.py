"""Sessions: a cluster that stays, for cells of a notebook and calls of functions.

``client`` is what users hold, ``protocol.py`` what it and the driver agree on, ``cluster`` the
driver's part.
"""
