"""The command line: arguments in, a request out; events in, lines and bars out."""
