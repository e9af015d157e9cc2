"""The exit codes of ``tierwise`` itself; a program that runs has codes of its own."""

DONE = 0
CANNOT_WRITE = 1
"""The output cannot be written."""
USAGE_ERROR = 2
"""The command line or the configuration is wrong, or a package is missing."""
INTERRUPTED = 130
