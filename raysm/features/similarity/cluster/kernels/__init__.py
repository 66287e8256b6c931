"""The C files of the similarity, and how they become libraries.

These modules need only the standard library: wheels are built in environments without other
packages.
"""
