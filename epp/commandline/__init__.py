"""The command line: the commands, the extras that they need, and how each one is run."""
