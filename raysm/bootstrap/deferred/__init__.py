"""A folder for ``PYTHONPATH`` whose modules replace installed packages that are slow to import and seldom used."""
