"""What a command-line flag is and how its value is read; the flags themselves are beside their commands."""
