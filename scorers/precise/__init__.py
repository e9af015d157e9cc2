"""How much of a prompt each endpoint holds, as its KV events report it."""
