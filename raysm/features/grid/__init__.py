"""Grids: the rows of a table as jobs over regions, each done once.

``client`` is what users hold, ``sources`` read the rows, and ``store`` keeps them in a file. Begin
with ``controller.py``: one step looks at jobs (``region_poll.py``), chooses places for rows
(``placement.py``), sends them (``sending.py``) and stops them (``stopping.py``). What an end means
is in ``endings.py``, when the grid backs off and gives up in ``retry_policy.py``. ``batch_job`` is
for grids that AWS Batch runs.
"""
