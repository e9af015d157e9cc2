"""Scorers and filters that keep together what belongs together: sessions, adapters, places."""
