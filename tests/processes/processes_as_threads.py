"""Several "processes" of a training as threads of one: each with its own graph and session, and a real agreement."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict

import numpy as np
import tensorflow as tf

from tpk.errors import PeerError
from tpk.strategies import MultiProcessStrategy, ProcessGroup

PATIENCE = 60


class Meeting:
    """Where threads meet: each gives a value, and gets those of all, unless one is gone."""

    def __init__(self, size, patience):
        self.size = size
        self._patience = patience
        self._rounds = defaultdict(dict)
        self._counts = defaultdict(int)
        self._gone = set()
        self._state = threading.Condition()

    def gather(self, channel, rank, value):
        with self._state:
            number = self._counts[channel, rank]
            self._counts[channel, rank] += 1
            values = self._rounds[channel, number]
            values[rank] = value
            self._state.notify_all()
            self._state.wait_for(lambda: len(values) == self.size or self._gone - values.keys(), timeout=self._patience)
            if len(values) < self.size:
                raise PeerError(f"not all are there, at {channel!r}; gone: {sorted(self._gone)}")
            return [values[each] for each in range(self.size)]

    def leave(self, rank):
        with self._state:
            self._gone.add(rank)
            self._state.notify_all()


class ThreadExchange(ProcessGroup):
    def __init__(self, meeting, rank):
        super().__init__(rank, meeting.size)
        self._meeting = meeting

    def gather_bytes(self, data):
        return self._meeting.gather("exchange", self.rank, data)


class ThreadStrategy(MultiProcessStrategy):
    """A strategy whose processes are threads; what they reduce goes through Python."""

    def __init__(self, meeting, rank, **options):
        super().__init__(**options)
        self._meeting = meeting
        self._process_group = ThreadExchange(meeting, rank)
        self._channels = 0

    @property
    def rank(self):
        return self._process_group.rank

    @property
    def world_size(self):
        return self._meeting.size

    @property
    def process_group(self):
        return self._process_group

    def leave(self):
        self._meeting.leave(self.rank)

    def session_config(self, config):
        config = super().session_config(config)
        # An op that waits for the others keeps its thread, which must not be one that they need.
        config.use_per_session_threads = True
        config.inter_op_parallelism_threads = 4
        return config

    def reduce_over_processes(self, tensors):
        return self._gathered(tensors, lambda *values: np.mean(values, axis=0, dtype=values[0].dtype))

    def sum_over_processes(self, tensor):
        (total,) = self._gathered([tensor], lambda *values: np.sum(values, axis=0, dtype=values[0].dtype))
        return total

    def broadcast_from_chief(self, variables):
        received = self._gathered([variable.read_value() for variable in variables], lambda *values: values[0])
        return tf.group(*(variable.assign(value) for variable, value in zip(variables, received, strict=True)))

    def _gathered(self, tensors, combine):
        self._channels += 1
        channel = f"op {self._channels}"

        def gather(*values):
            return list(map(combine, *self._meeting.gather(channel, self.rank, values)))

        gathered = tf.numpy_function(gather, tensors, [tensor.dtype for tensor in tensors])
        for own, tensor in zip(gathered, tensors, strict=True):
            own.set_shape(tensor.shape)
        return gathered


def run_in_threads(size, target, patience=PATIENCE):
    """Call ``target(meeting, rank)`` in `size` threads; return what each returned or raised, by rank."""
    meeting = Meeting(size, patience)
    outcomes = [None] * size

    def run(rank):
        try:
            outcomes[rank] = target(meeting, rank)
        except BaseException as error:
            outcomes[rank] = error
        finally:
            meeting.leave(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    # Each training sets the level of the log, and sets it back to what it was; which is not made for several at once.
    log = logging.getLogger("tpk")
    level = log.level
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * PATIENCE)
    log.setLevel(level)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    return outcomes
