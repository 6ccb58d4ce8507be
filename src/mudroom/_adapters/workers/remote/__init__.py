"""A worker that executes child runs in other processes.

    session's process                         worker process (one of N)
    -----------------                         -------------------------
    RemoteWorker  (worker.py)                 process_services.py reads the config, builds services
      WorkerHandle       <--connection-->       serve.py          runs LocalWorker
      (worker_handle.py)                        remote_services.py:
        journal, approver,                      RemoteJournal, RemoteApprover,
        meters, bridged models                  RemoteParentMeter, RemoteModel

The session's process remains the only writer of the journal and holds all meters. A connection
carries the messages of messages.py in frames (_peers.py). `process.py` connects to processes on
this machine, `mudroom_fleet` to a cluster and to processes shared by several sessions. When a
worker process dies, its runs continue in another from their last recorded step.
"""
