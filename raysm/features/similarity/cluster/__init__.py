"""What runs in the job: the exact cosine similarity of every row of a matrix with every other row.

``arithmetic`` defines the answer. ``reading`` maps the rows, ``layout`` says which instance has
which rows (``shards`` and ``rotation`` if each has only a share), and ``tiling`` splits all pairs
of rows into tiles. Each of the ``tasks`` has one of the ``engines``, with compiled ``kernels``,
compare a tile. ``modes`` say what a task returns, and ``owners`` merge and write the result.
"""
