"""HTTP/2 and gRPC, as thin as an ext-proc exchange allows."""
