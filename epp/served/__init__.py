"""Which models the endpoints serve: read from their ``/v1/models``, used for routing, and listed for clients.

lister ─► read_cards ─► catalog ─► scorers.labels.served_models (the endpoints that may serve a request)
                           └─► listing (the response to a client's GET /v1/models)
"""
