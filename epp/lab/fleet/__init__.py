"""``tierwise simulate``: a fleet of simulated engines behind the real picker, in virtual time.

The engines are ``epp.lab.engine``'s, the same objects that ``tierwise sim`` serves in real time. What decides is
``epp.server.core``: any ``EndpointPickerConfig`` is a policy. The two know nothing of each other here either: the
picker sees bytes of prompts and what scrapes say, the engines see names of blocks.
"""
