"""Reads an engine's metrics page: a page of text in, numbers out."""
