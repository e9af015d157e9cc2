"""The time to first token at each endpoint, in seconds: the formula, the work ahead, and learned constants."""
