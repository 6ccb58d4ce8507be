"""Worker that executes child runs in other processes on this machine.

    session's process                         worker process (one of N)
    -----------------                         -------------------------
    ProcessWorker  (worker.py)                worker_process.py   reads the config, builds services
      ProcessHandle       <--channel-->       serve.py            runs LocalWorker
      (process_handle.py)                       remote_services.py:
        journal, approver,                      RemoteJournal, RemoteApprover,
        meters, bridged models                  RemoteParentMeter, RemoteModel

The process of the session stays the only writer of the journal and holds all meters. A channel is
a socket pair that carries msgpack frames (channel.py, messages.py). When a worker process dies, its
runs continue in another one from their last recorded step.
"""
