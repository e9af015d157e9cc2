"""KV events of many engines: followed, decoded and resolved in a separate process, for the precise index.

engines ══ZMQ══► subscriber ─► streams ─► decoding ─► residents ─► runs ══pipe══► feed ─► scorers.precise.cache
                 └──────────────── the child process ──────────┘            └─ the picker's event loop ─┘
"""
