"""The endpoint picker: an ext-proc service that sends each request where its prefix is still cached."""
