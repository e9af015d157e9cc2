"""Shapes of models and GPUs: data with its sources, and the arithmetic that follows from it alone."""
