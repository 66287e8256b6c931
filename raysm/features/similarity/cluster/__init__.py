"""The exact cosine similarity of every row of a matrix with every other row.

``arithmetic`` defines the answer, ``reading`` maps the rows, ``engines`` compare tiles with
compiled ``kernels``, ``tasks`` and ``modes`` say what one task does, ``owners`` merge and write the
result, ``layouts`` say where rows lie, and ``run`` is the whole workload on the head.
"""
