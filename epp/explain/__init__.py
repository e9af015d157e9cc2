"""What the picker knows and would decide, for people: the debug port, and the command that reads it."""
