"""Listening ports: who takes one, TLS on it, its certificates, and what fails there."""
