"""What the engines say of themselves: their metrics pages, read often and cheaply."""
