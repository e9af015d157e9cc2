"""What the picker knows and would decide, for people who ask: the debug port, and the command that reads it."""
