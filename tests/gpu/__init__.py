"""What only a GPU can show: ``bash tests/gpu/run.sh``, with nothing but Python, NumPy and a PyTorch of that GPU.

No Ray, no pyarrow, no pytest, no network: jobs are left out here (the tests of ``tests/jobs`` have
them), and the machine may be one that was lent for minutes. ``--device cpu`` runs the same code in
small on any machine.
"""
