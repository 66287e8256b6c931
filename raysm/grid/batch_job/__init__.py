"""The controller of a grid as one job of AWS Batch: what is asked for, what it is given, how it goes on."""
