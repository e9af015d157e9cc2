"""HTTP/2 and gRPC, as thin as an ext-proc exchange allows.

From the socket inwards: ``server`` (asyncio) hands bytes to a ``session``, whose ``connection`` cuts them into frames
(``deframer``), takes in requests (``inbound``, ``compression``, ``fields``), answers control frames (``control``) and
sends (``outbound``); the session turns streams into gRPC calls (``grpc``, ``call``) and drives the handlers that
``service`` describes. Only ``server`` knows sockets and clocks. ``limits`` and ``floods`` say how much a client may ask
for. ``aio`` hosts the same handlers on grpcio.
"""
