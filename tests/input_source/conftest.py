from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from tpk.plugin import HookManager, Progress
from tpk.session import HookedSession


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = _own_threads()
    yield
    assert _own_threads() <= before  # One of an earlier test may have ended since.


def _own_threads() -> set[threading.Thread]:
    """Those that Python has started; a thread of TensorFlow that has run Python code stays known as a dummy."""
    return {each for each in threading.enumerate() if not isinstance(each, threading._DummyThread)}


@pytest.fixture
def specs() -> Callable[..., list[Any]]:
    """Make a signature of int32 scalars with these names."""

    def make(*names: str) -> list[Any]:
        return [tf.TensorSpec([], tf.int32, name) for name in names]

    return make


class Drive:
    """Takes steps with the tensors of a source in a real session, its callbacks called as in a training."""

    def __init__(self, source: Any, signature: Sequence[Any], towers: int = 1, state: Any = None) -> None:
        self.source = source
        self.graph = tf.Graph()
        self.hooks = HookManager()
        with self.graph.as_default():
            self.callbacks = source.setup(signature)
            self.towers: list[Any] = []
            self.fetches: list[Any] = []
            for index in range(towers):
                before = [tensor for tower in self.towers for tensor in tower]
                with tf.device(f"/cpu:{index}"), tf.control_dependencies(before):
                    self.towers.append(source.get_input_tensors())
                    # What is fed and fetched at once would not go through the graph.
                    self.fetches.append([tf.identity(tensor) for tensor in self.towers[-1]])
            self.finish_graph()
        self.graph.finalize()
        self.hooks.register_all(self.callbacks)
        if state is not None:
            source.load_state_dict(state)

    def finish_graph(self) -> None:
        """Add to the graph what a test needs."""

    def __enter__(self) -> Drive:
        self._default = self.graph.as_default()
        self._default.__enter__()
        self.sess = tf.compat.v1.Session(config=tf.compat.v1.ConfigProto(device_count={"CPU": len(self.towers)}))
        self.trainer = SimpleNamespace(sess=self.sess, graph=self.graph)
        self.hooked_sess = HookedSession(self.sess, self.hooks.compile_step(), Progress())
        try:
            self.hooks.hook.before_train(trainer=self.trainer)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        failures = self.hooks.after_train(self.trainer)
        self.sess.close()
        self._default.__exit__(*exc_info)
        for failure in failures:
            raise failure

    def step(self) -> list[Any]:
        """Return what each tower gets in one step."""
        return self.hooked_sess.run(self.fetches)

    @staticmethod
    def join_thread(source: str) -> None:
        """Wait for the end of the thread of an input source, if it has one."""
        for thread in threading.enumerate():
            if thread.name == f"tpk-{source}":
                thread.join(60)
                assert not thread.is_alive()

    def first_components(self, steps: int) -> list[Any]:
        """Return what the first input of each tower was in some steps, one after the other."""
        return [tower[0] for _ in range(steps) for tower in self.step()]


@pytest.fixture
def drive() -> type[Drive]:
    return Drive
