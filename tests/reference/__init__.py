"""Writes the pages of ``docs/reference`` that follow from the code: ``python -m tests.reference``.

What flows in are the docstrings, fields, constants and commands of raysm, what flows out are Markdown pages. A test
holds that those in ``docs/`` are the same.
"""
