"""The offline tools: simulated engines and fleets, and the commands made of them. No serving room imports them."""
