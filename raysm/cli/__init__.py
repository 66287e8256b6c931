"""The command line ``raysm``: arguments and their help, requests from arguments, and printed output."""
