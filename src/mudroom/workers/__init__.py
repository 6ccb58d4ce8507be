"""Workers: adapters of the Worker port, one module per place where runs are executed."""
