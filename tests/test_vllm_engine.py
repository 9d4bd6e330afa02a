"""An engine is shut down, and its threads are waited for, before the interpreter ends."""

import threading
import weakref
from types import SimpleNamespace

from memenvs.models.vllm import stop_engine


class Engine:
    """Has a thread that ends when it is shut down."""

    def __init__(self):
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.over.wait, daemon=True)
        self.thread.start()
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.over.set))


def test_its_threads_have_ended():
    engine = Engine()
    stop_engine(weakref.ref(engine), [engine.thread])
    assert not engine.thread.is_alive()


def test_an_engine_that_is_gone_is_waited_for_all_the_same():
    engine = Engine()
    engine.over.set()
    thread, gone = engine.thread, weakref.ref(engine)
    del engine
    stop_engine(gone, [thread])
    assert not thread.is_alive()
