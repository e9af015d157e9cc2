"""The prefix index: runs of blocks, their ages and their holders. No plugin is in here."""
