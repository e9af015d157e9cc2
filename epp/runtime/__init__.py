"""asyncio and the process: background tasks, slices of long work, followed files, logs, signals, memory."""
