"""What a command-line flag is and how its value is written; the flags themselves stand beside their commands."""
