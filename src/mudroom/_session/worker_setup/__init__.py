"""Worker processes: the worker that a session uses, and the services inside a worker process."""
