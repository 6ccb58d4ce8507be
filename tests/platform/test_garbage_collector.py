"""The garbage collector waits until the program has started, and then stops it for short times."""

import gc

from mudroom._platform.own_process import collect_garbage_less_often


def test_the_first_collection_comes_later_than_the_others() -> None:
    thresholds = gc.get_threshold()
    callbacks = list(gc.callbacks)
    try:
        collect_garbage_less_often()
        assert gc.get_threshold()[0] == 100_000
        gc.collect(0)
        assert gc.get_threshold()[0] == 50_000
    finally:
        gc.callbacks[:] = callbacks
        gc.set_threshold(*thresholds)
