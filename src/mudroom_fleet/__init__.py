"""Transport to worker processes on the nodes of a Ray cluster. Ray places them; it keeps no state.

    session's process            driver process              node (one actor of N)
    -----------------            --------------              ---------------------
    RayTransport        socket   driver.py        Ray calls  WorkerActor  (actor.py)
      RayConnection  <--------->   ActorLinks  <----------->   worker_process.serve
      (transport.py)                 ActorLink
                                     (actor_link.py)

Only the driver process and the actors import Ray. A call carries many frames in both directions, so
the number of calls does not grow with the number of runs. Each actor has a lease (lease.py): an
actor from which the driver gets no replies stops itself before its runs start again elsewhere.
"""
