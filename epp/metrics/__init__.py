"""What is counted, and how Prometheus reads it.

The hot path writes plain numbers (``Telemetry``); when somebody scrapes, ``Exposition`` turns them into metrics. One
labelled observation by the client library costs about 2 µs, and a request has some twenty.
"""
