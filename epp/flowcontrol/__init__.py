"""Admission: how full the pool is, which requests are shed or queued, and in which order they leave the queues.

``saturation`` and ``detectors`` measure how full the endpoints are. Without the feature gate ``flowControl``, ``gate``
sheds requests of negative priority while the pool is full. With it, ``controller`` is the pure core: bands by priority,
flows within a band, an order within a flow. ``room`` runs it on the event loop.
"""
