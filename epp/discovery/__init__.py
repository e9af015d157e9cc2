"""Discovery: where the endpoints come from."""
