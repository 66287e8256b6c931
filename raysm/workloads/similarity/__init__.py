"""The exact cosine similarity of every row of a matrix with every other row.

``score`` is the definition of the answer, ``products`` finds who has to be scored and proves that nobody is missed,
``topk``, ``threshold`` and ``full`` are what one task does, ``run`` is the whole workload on the head. ``matrix`` and
``formats`` bring the rows, ``output`` writes the result.
"""
