#!/usr/bin/env python
"""An actor-critic whose simulators are processes: they send states, and get actions from a predictor in threads."""

import multiprocessing as mp
import os
import queue
import threading
from collections import defaultdict
from concurrent import futures

import numpy as np
import tensorflow as tf
import zmq
from tensorpack import *  # noqa: F403
from tensorpack.tfutils.gradproc import MapGradient, SummaryGradient
from tensorpack.utils.concurrency import LoopThread, ensure_proc_terminate, start_proc_mask_signal
from tensorpack.utils.serialize import dumps, loads

# ruff: noqa: F405, RUF005, UP004, UP008, UP032

GAMMA = 0.9
STATE_SHAPE = (7,)
LOCAL_TIME_MAX = 4
BATCH_SIZE = 8
SIMULATOR_PROC = 2
PREDICTOR_THREAD = 2
NUM_ACTIONS = 2


class Corridor(object):
    """A walk to the right end of a corridor, where there is a reward."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.position, self.time = 3, 0
        return self._state()

    def _state(self):
        state = np.zeros(STATE_SHAPE, dtype="float32")
        state[self.position] = 1
        return state

    def step(self, action):
        self.position += 1 if action == 1 else -1
        self.time += 1
        is_over = self.position in (0, STATE_SHAPE[0] - 1) or self.time > 20
        reward = 1.0 if self.position == STATE_SHAPE[0] - 1 else 0.0
        return (self.reset() if is_over else self._state()), reward, is_over


class SimulatorProcess(mp.Process):
    def __init__(self, idx, pipe_c2s, pipe_s2c):
        super(SimulatorProcess, self).__init__()
        self.idx = idx
        self.name = "simulator-{}".format(idx)
        self.c2s = pipe_c2s
        self.s2c = pipe_s2c

    def run(self):
        env = Corridor()
        context = zmq.Context()
        c2s_socket = context.socket(zmq.PUSH)
        c2s_socket.setsockopt(zmq.IDENTITY, self.name.encode("utf-8"))
        c2s_socket.set_hwm(2)
        c2s_socket.connect(self.c2s)
        s2c_socket = context.socket(zmq.DEALER)
        s2c_socket.setsockopt(zmq.IDENTITY, self.name.encode("utf-8"))
        s2c_socket.connect(self.s2c)
        state, reward, is_over = env.reset(), 0, False
        while True:
            c2s_socket.send(dumps((self.name.encode("utf-8"), state, reward, is_over)), copy=False)
            action = loads(s2c_socket.recv(copy=False))
            state, reward, is_over = env.step(action)


class TransitionExperience(object):
    def __init__(self, state, action, **kwargs):
        self.state = state
        self.action = action
        for key, value in kwargs.items():
            setattr(self, key, value)


class ClientState(object):
    def __init__(self):
        self.memory = []
        self.ident = None


class SimulatorMaster(threading.Thread):
    """Receive messages from all simulators, and send them actions."""

    def __init__(self, pipe_c2s, pipe_s2c):
        super(SimulatorMaster, self).__init__()
        self.daemon = True
        self.name = "SimulatorMaster"
        self.context = zmq.Context()
        self.c2s_socket = self.context.socket(zmq.PULL)
        self.c2s_socket.bind(pipe_c2s)
        self.c2s_socket.set_hwm(10)
        self.s2c_socket = self.context.socket(zmq.ROUTER)
        self.s2c_socket.bind(pipe_s2c)
        self.s2c_socket.set_hwm(10)
        self.send_queue = queue.Queue(maxsize=100)

        def send():
            self.s2c_socket.send_multipart(self.send_queue.get(), copy=False)

        self.send_thread = LoopThread(send)
        self.send_thread.daemon = True

    def run(self):
        self.clients = defaultdict(ClientState)
        self.send_thread.start()
        while True:
            ident, state, reward, is_over = loads(self.c2s_socket.recv(copy=False))
            client = self.clients[ident]
            client.ident = ident
            self._process_msg(client, state, reward, is_over)


class MySimulatorMaster(SimulatorMaster, Callback):
    def __init__(self, pipe_c2s, pipe_s2c):
        super(MySimulatorMaster, self).__init__(pipe_c2s, pipe_s2c)
        self.queue = queue.Queue(maxsize=BATCH_SIZE * 8 * 2)
        self.rng = np.random.RandomState(0)

    def _setup_graph(self):
        self.async_predictor = MultiThreadAsyncPredictor(
            [self.trainer.get_predictor(["state"], ["policy", "pred_value"]) for _ in range(PREDICTOR_THREAD)],
            batch_size=4,
        )

    def _before_train(self):
        self.async_predictor.start()
        logger.info("Starting MySimulatorMaster ...")
        start_proc_mask_signal(self)

    def _on_state(self, state, client):
        def cb(outputs):
            try:
                distrib, value = outputs.result()
            except (futures.CancelledError, tf.errors.CancelledError):
                logger.info("Client {} cancelled.".format(client.ident))
                return
            assert np.all(np.isfinite(distrib)), distrib
            action = self.rng.choice(len(distrib), p=distrib / distrib.sum())
            client.memory.append(TransitionExperience(state, action, reward=None, value=value, prob=distrib[action]))
            self.send_queue.put([client.ident, dumps(int(action))])

        self.async_predictor.put_task([state], cb)

    def _process_msg(self, client, state, reward, is_over):
        if len(client.memory) > 0:
            client.memory[-1].reward = reward
            if is_over:
                self._parse_memory(0, client, True)
            elif len(client.memory) == LOCAL_TIME_MAX + 1:
                R = client.memory[-1].value
                self._parse_memory(R, client, False)
        self._on_state(state, client)

    def _parse_memory(self, init_r, client, is_over):
        mem = client.memory
        if not is_over:
            last = mem[-1]
            mem = mem[:-1]
        mem.reverse()
        R = float(init_r)
        for k in mem:
            R = k.reward + GAMMA * R
            self.queue.put([k.state, k.action, R, k.prob])
        client.memory = [] if is_over else [last]


class Model(ModelDesc):
    def inputs(self):
        return [
            tf.placeholder(tf.float32, (None,) + STATE_SHAPE, "state"),
            tf.placeholder(tf.int64, (None,), "action"),
            tf.placeholder(tf.float32, (None,), "futurereward"),
            tf.placeholder(tf.float32, (None,), "action_prob"),
        ]

    def _get_NN_prediction(self, state):
        x = FullyConnected("fc0", state, 16, activation=tf.nn.relu)
        x = PReLU("prelu", x)
        logits = FullyConnected("fc-pi", x, NUM_ACTIONS)
        value = FullyConnected("fc-v", x, 1)
        return logits, value

    def build_graph(self, state, action, futurereward, action_prob):
        logits, value = self._get_NN_prediction(state)
        value = tf.squeeze(value, [1], name="pred_value")
        policy = tf.nn.softmax(logits, name="policy")
        if not self.training:
            return
        log_probs = tf.log(policy + 1e-6)
        log_pi_a_given_s = tf.reduce_sum(log_probs * tf.one_hot(action, NUM_ACTIONS), 1)
        advantage = tf.subtract(tf.stop_gradient(value), futurereward, name="advantage")
        pi_a_given_s = tf.reduce_sum(policy * tf.one_hot(action, NUM_ACTIONS), 1)
        importance = tf.stop_gradient(tf.clip_by_value(pi_a_given_s / (action_prob + 1e-8), 0, 10))
        policy_loss = tf.reduce_sum(log_pi_a_given_s * advantage * importance, name="policy_loss")
        xentropy_loss = tf.reduce_sum(policy * log_probs, name="xentropy_loss")
        value_loss = tf.nn.l2_loss(value - futurereward, name="value_loss")
        pred_reward = tf.reduce_mean(value, name="predict_reward")
        advantage = tf.sqrt(tf.reduce_mean(tf.square(advantage)), name="rms_advantage")
        entropy_beta = tf.get_variable(
            "entropy_beta", shape=[], initializer=tf.constant_initializer(0.01), trainable=False
        )
        cost = tf.add_n([policy_loss, xentropy_loss * entropy_beta, value_loss])
        cost = tf.truediv(cost, tf.cast(tf.shape(futurereward)[0], tf.float32), name="cost")
        summary.add_moving_summary(
            policy_loss,
            xentropy_loss,
            value_loss,
            pred_reward,
            advantage,
            cost,
            tf.reduce_mean(importance, name="importance"),
        )
        return cost

    def optimizer(self):
        lr = tf.get_variable("learning_rate", initializer=0.05, trainable=False)
        opt = tf.train.AdamOptimizer(lr, epsilon=1e-3)
        gradprocs = [MapGradient(lambda grad: tf.clip_by_norm(grad, 0.5)), SummaryGradient()]
        return optimizer.apply_grad_processors(opt, gradprocs)


def train():
    logger.auto_set_dir("d")
    name_base = "ipc://" + os.path.join(os.getcwd(), "sim")
    namec2s, names2c = name_base + "-c2s", name_base + "-s2c"
    procs = [SimulatorProcess(k, namec2s, names2c) for k in range(SIMULATOR_PROC)]
    ensure_proc_terminate(procs)
    start_proc_mask_signal(procs)

    master = MySimulatorMaster(namec2s, names2c)
    config = TrainConfig(
        model=Model(),
        dataflow=BatchData(DataFromQueue(master.queue), BATCH_SIZE),
        callbacks=[
            ModelSaver(),
            ScheduledHyperParamSetter("learning_rate", [(1, 0.05), (2, 0.01)]),
            ScheduledHyperParamSetter("entropy_beta", [(2, 0.005)]),
            HumanHyperParamSetter("learning_rate"),
            master,
        ],
        steps_per_epoch=15,
        max_epoch=2,
    )
    launch_train_with_config(config, QueueInputTrainer())
    print("clients", len(master.clients))


if __name__ == "__main__":
    train()
