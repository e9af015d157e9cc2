"""The prefix index: runs of blocks, their ages and their holders. This room contains no plugin."""
