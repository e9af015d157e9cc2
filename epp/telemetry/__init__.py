"""What is counted, and how Prometheus reads it.

The hot path writes plain numbers (``Telemetry``); when somebody scrapes, ``Exposition`` turns them into metrics. One
labelled observation by the client library costs about 2 µs, and a request has some twenty.
"""

from epp.telemetry.exposition import Exposition, Frozen
from epp.telemetry.gauges import Histograms, Reading, Source
from epp.telemetry.telemetry import Telemetry

__all__ = ["Exposition", "Frozen", "Histograms", "Reading", "Source", "Telemetry"]
