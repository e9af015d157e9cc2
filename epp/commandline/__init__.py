"""The command line: which commands there are, what they need installed, and how each one is run."""
