"""Worker processes: the worker a session uses, and the services inside a worker process."""
