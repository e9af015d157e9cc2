"""HTTP/2 as a pure state machine: bytes in, events and bytes out."""
