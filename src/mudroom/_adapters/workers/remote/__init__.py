"""Worker that executes child runs in other processes.

    session's process                         worker process (one of N)
    -----------------                         -------------------------
    RemoteWorker  (worker.py)                 process_services.py reads the config, builds services
      WorkerHandle       <--connection-->       serve.py          runs LocalWorker
      (worker_handle.py)                        remote_services.py:
        journal, approver,                      RemoteJournal, RemoteApprover,
        meters, bridged models                  RemoteParentMeter, RemoteModel

The process of the session stays the only writer of the journal and holds all meters. A connection
carries the messages of messages.py in frames (_peers.py). `process.py` has the one to processes of
this machine, `mudroom_fleet` those to a cluster and to processes that several sessions share.
When a worker process dies, its runs continue in another one from their last recorded step.
"""
