"""Reads the engines' metrics pages, often and cheaply."""
