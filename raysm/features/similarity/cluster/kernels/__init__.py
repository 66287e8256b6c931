"""The C files of the similarity, and how they become libraries: prebuilt in a wheel, or compiled on the instance.

These modules need only the standard library: wheels are built in environments without other
packages.
"""
