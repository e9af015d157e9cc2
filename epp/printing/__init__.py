"""What the commands print for people: tables that are never cut, wrapped sentences, progress."""
