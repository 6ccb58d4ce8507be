"""The program that starts a Linux sandbox's commands, in a separate process.

The program is small and single-threaded, and its environment is empty, so it holds no keys of
mudroom's. Modules in this folder import only the standard library, each other, and the modules of
`_platform` that say "standard library only".

Processes in tier full (`bwrap_supervisor`)::

    client (daemon_client.py)
      |  control socket: one DaemonSetup, then one request per command
      v
    daemon (main.py, bwrap_supervisor.py)          one per sandbox; ends with the client
      |  posix_spawn, one per command
      |  <- status pipe: bwrap reports its child and its exit code
      |  -> gate pipe: the daemon sets limits, then lets the child continue
      v
    bwrap -> first process of the new namespaces -> bash -c COMMAND
                                                       |
    client <------ output pipe (stdout and stderr) ----+
    client <------ result socket: one Outcome, sent by the daemon

Processes in tier file (`landlock_watcher`)::

    client (daemon_client.py)
      |  control socket, as above
      v
    daemon (main.py, landlock_watcher.py)          one per sandbox
      |  fork, one per command
      v
    watcher (landlock_watcher.py)                  sends the Outcome; every orphan becomes its child
      |  fork, then Landlock rules and the seccomp filter
      v
    bash -c COMMAND ------ output pipe ------> client

If the client dies or gives up, the result socket closes, and the command is killed.
"""
