"""The first hour on AWS: a few small jobs that show whether raysm works there, and write down what was seen.

What flows in is a service, what flows out are a folder of records (every call with its answer, and what each instance
saw of itself, names and numbers blanked) and a line for each thing about SageMaker that raysm takes for granted and no
documentation says. ``raysm doctor --first-job`` is the command.
"""
