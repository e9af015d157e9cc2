"""The command ``tierwise serve``: makes, starts and drains every part of a picker. Only this room and ``standalone``
have main loops.
"""
