"""What the prefix index costs."""
