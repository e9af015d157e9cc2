"""How right and how fast the simulator is."""
