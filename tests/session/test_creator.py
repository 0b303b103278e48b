from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.debug.wrappers.dumping_wrapper import DumpingDebugWrapperSession

import tpk
from tpk.errors import ConfigError, SessionError
from tpk.session import NewSessionCreator, ReuseSessionCreator, default_session_config
from tpk.testing.trainings import TinyModel, batches

v1 = tf.compat.v1


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        v1.get_variable("global", initializer=1.0)
        v1.get_variable("local", initializer=2.0, collections=[v1.GraphKeys.LOCAL_VARIABLES])
        keys = tf.lookup.KeyValueTensorInitializer(["a"], [3])
        table = v1.lookup.StaticHashTable(keys, -1)
        table.lookup(tf.constant("a"), name="looked_up")
        yield graph


def test_a_new_session_has_variables_and_tables_initialized(graph):
    config = default_session_config()
    config.intra_op_parallelism_threads = 1
    with NewSessionCreator(config=config).create_session(graph) as sess:
        values = sess.run([*v1.global_variables(), *v1.local_variables()])
        assert values == [1.0, 2.0]
        (looked_up,) = [op for op in graph.get_operations() if "LookupTableFind" in op.type]
        assert sess.run(looked_up.outputs[0]) == 3


def test_a_reused_session_keeps_its_values_and_initializes_the_rest(graph):
    with v1.Session(graph=graph) as sess:
        (variable,) = v1.global_variables()
        sess.run(variable.initializer, {variable.initializer.inputs[1]: 10.0})
        creator = ReuseSessionCreator(sess)
        assert creator.create_session(graph) is sess
        assert sess.run([*v1.global_variables(), *v1.local_variables()]) == [10.0, 2.0]
        assert not creator.owns_session


def test_a_session_of_another_graph_is_refused(graph):
    with v1.Session(graph=tf.Graph()) as sess, pytest.raises(SessionError, match="another graph"):
        ReuseSessionCreator(sess).create_session(graph)


def test_a_closed_session_is_refused(graph):
    sess = v1.Session(graph=graph)
    sess.close()
    with pytest.raises(SessionError, match="closed"):
        ReuseSessionCreator(sess).create_session(graph)


@pytest.mark.parametrize("steps_per_run", [1, 2])
def test_a_trainer_runs_a_session_that_a_debugger_wraps(tmp_path, steps_per_run):
    class Debugged(NewSessionCreator):
        def create_session(self, graph):
            return DumpingDebugWrapperSession(super().create_session(graph), session_root=str(tmp_path))

    trainer = tpk.Trainer()
    with trainer.graph.as_default():
        counter = v1.get_variable("counter", initializer=0)
        trainer.train_op = counter.assign_add(1, read_value=False, name="count")
    trainer.steps_per_run = steps_per_run
    trainer.train(steps_per_epoch=4, max_epoch=1, session_creator=Debugged())
    assert trainer.global_step == 4
    assert list(tmp_path.glob("run_*/*/counter_0_DebugIdentity_*"))


class OneThread:
    """No class of TensorFlow, but what it can be told by."""

    def create_session(self):
        sess = v1.Session(config=v1.ConfigProto(intra_op_parallelism_threads=1))
        sess.run(v1.global_variables_initializer())
        return sess


def trained(trainer_graph=None, **options):
    """Train nothing for a step; return the value of a variable, and the trainer."""
    with (trainer_graph or tf.Graph()).as_default():
        w = v1.get_variable("w", initializer=1.0)
        trainer = tpk.Trainer()
        trainer.train_op = w.assign_add(1.0).op
    seen = []

    class Look(tpk.Callback):
        def before_train(self, trainer):
            seen.extend([float(trainer.sess.run(w)), trainer.sess, trainer.global_step])

    trainer.train(callbacks=[Look()], steps_per_epoch=1, max_epoch=1, **options)
    return seen


def test_a_session_creator_of_tensorflow_brings_scaffold_and_config():
    config = v1.ConfigProto(intra_op_parallelism_threads=3)
    done = []
    scaffold = v1.train.Scaffold(init_fn=lambda scaffold, sess: done.append(sess))
    value, sess, _ = trained(session_creator=v1.train.ChiefSessionCreator(scaffold, config=config))
    assert value == 1.0 and done == [sess]
    assert sess._config.intra_op_parallelism_threads == 3


def test_a_session_creator_of_tensorflow_restores_its_checkpoint(tmp_path):
    with tf.Graph().as_default(), v1.Session() as sess:
        w = v1.get_variable("w", initializer=1.0)
        step = v1.train.create_global_step()
        sess.run([w.assign(5.0), step.assign(20)])
        v1.train.Saver().save(sess, str(tmp_path / "model"), global_step=20)

    def creator():
        return v1.train.ChiefSessionCreator(checkpoint_dir=str(tmp_path))

    value, _, global_step = trained(session_creator=creator())
    assert (value, global_step) == (5.0, 20)
    assert trained(session_creator=creator(), session_init={"w": np.float32(7)})[0] == 7.0


def test_anything_that_creates_sessions_will_do():
    value, sess, _ = trained(session_creator=OneThread())
    assert value == 1.0 and sess._config.intra_op_parallelism_threads == 1


def test_a_strategy_that_needs_a_config_of_its_own_refuses_a_session_that_another_creates():
    config = tpk.TrainConfig(
        model=TinyModel(),
        dataflow=batches(4),
        session_creator=OneThread(),
        steps_per_epoch=2,
        max_epoch=1,
    )
    trainer = tpk.SyncMultiGPUTrainerReplicated(["/cpu:0", "/cpu:1"])
    with pytest.raises(ConfigError, match=r"ReplicatedStrategy needs a session with its own config. Pass"):
        tpk.launch_train_with_config(config, trainer)


@pytest.mark.parametrize(
    ("creator", "message"),
    [
        ("new", r"session_creator='new': expected an object with create_session\(\), .*session_config"),
        (OneThread, r"OneThread'>: expected an object with create_session\(\)"),
    ],
)
def test_what_creates_no_session_is_refused(creator, message):
    with pytest.raises(ConfigError, match=message):
        trained(session_creator=creator)


def test_a_creator_of_something_else_than_a_session_is_refused():
    class Monitored:
        def create_session(self):
            return v1.train.MonitoredSession()

    class Foreign:
        def create_session(self):
            return v1.Session(graph=tf.Graph())

    with pytest.raises(SessionError, match=r"create_session\(\) of Monitored returned .*expected a raw"):
        trained(session_creator=Monitored())
    with pytest.raises(SessionError, match=r"create_session\(\) of Foreign returned .* of the trainer's graph"):
        trained(session_creator=Foreign())


def test_a_config_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match=r"session_config=5: expected a tf\.compat\.v1\.ConfigProto"):
        NewSessionCreator(config=5)
