"""A small client of the Kubernetes API: credentials, lists, watches, and the fields of objects that are needed."""
