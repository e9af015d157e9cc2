"""Which models the endpoints serve: read from their ``/v1/models``, told to whoever routes by it, answered to clients.

lister ─► read_cards ─► catalog ─► scorers.labels.served_models (who may serve a request)
                           └─► listing (what a client of /v1/models is answered)
"""
