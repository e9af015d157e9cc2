"""Message classes of ``proto/``, generated: see ``proto/generate.py``."""
