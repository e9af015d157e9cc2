"""`tierwise serve`: every part is made, started and drained here, and main loops are in no other room but
`standalone`."""
