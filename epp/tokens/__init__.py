"""Prompts as the engines' token ids, for whoever must know the engines' own blocks."""
