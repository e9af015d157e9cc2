"""Admission: how full the pool is, who is shed, who waits, and in which order those who wait go on.

``saturation`` and its detectors say how full the endpoints are. Without the gate ``flowControl``, ``shedding`` refuses
requests of negative priority while they are full. With it, ``controller`` is the pure core: bands by priority, flows
within a band, an order within a flow; ``room`` is its shell on the event loop.
"""
