"""Turns the checked document into plugins: each is created once and bound to what it reads."""
