"""``tierwise simulate``: a fleet of simulated engines behind the real picker, in virtual time.

The engines are those of ``epp.lab.engine``, the same objects that ``tierwise sim`` serves in real time. Decisions are
made by ``epp.server.core``: any ``EndpointPickerConfig`` is a policy. Here, too, the two share no knowledge: the picker
sees the bytes of prompts and scraped metrics, the engines see names of blocks.
"""
