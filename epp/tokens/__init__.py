"""Prompts as the engines' token ids, for plugins that need to know the engines' own blocks."""
