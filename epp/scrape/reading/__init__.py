"""What an engine's metrics page says: a page of text in, numbers out."""
