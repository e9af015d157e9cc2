"""What the picker costs."""
