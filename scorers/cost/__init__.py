"""The time to first token at each endpoint, in seconds: the formula, what is under way there, and constants learned."""
