"""The picker's metrics, and their exposition for Prometheus.

The hot path writes plain numbers (``Telemetry``); on a scrape, ``Exposition`` turns them into metrics. One labelled
observation by the client library costs about 2 µs, and a request has some twenty.
"""
