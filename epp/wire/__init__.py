"""A server for HTTP/2 and gRPC, with only the parts that an ext-proc exchange needs.

From the socket inwards: the ``server`` has a ``link`` for each transport, which passes bytes to a ``session``. The
``connection`` of the session cuts the bytes into frames (``deframer``), reads requests (``inbound``, ``compression``,
``fields``), answers control frames (``control``) and sends (``outbound``). The session turns streams into gRPC calls
(``grpc``, ``call``) and calls the handlers (``service``). Sockets and clocks occur only in ``server``, ``link`` and
``watch``.

``limits`` and ``floods`` bound what one client may use, and ``origins`` and ``turns`` what one address may use. ``aio``
hosts the same handlers on grpcio.
"""
