"""How much of a prompt each endpoint holds, approximately or by its eviction horizon."""
