"""The C files of the similarity, and how they become libraries: carried by a wheel, or compiled where they run.

Nothing here needs more than Python itself: a wheel's libraries are made where nothing else is installed.
"""
