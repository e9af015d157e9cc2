"""The offline tools: simulated engines and fleets, and the commands built from them. No serving room imports them."""
