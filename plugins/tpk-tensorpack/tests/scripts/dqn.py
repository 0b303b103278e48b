"""Q-learning with a custom trainer; a step has several runs: acting, learning, and updating a target network."""

import numpy as np
from tensorpack import Callback, FullyConnected, ModelSaver, PeriodicTrigger, RunOp, TowerTrainer, logger
from tensorpack.compat import tfv1 as tf
from tensorpack.tfutils.summary import add_moving_summary
from tensorpack.tfutils.tower import TowerContext, TowerFunc
from tensorpack.utils.stats import StatCounter

STATES, ACTIONS, GAMMA = 6, 2, 0.8


class ReplayMemory:
    """A ring buffer of the last transitions."""

    def __init__(self, max_size):
        self.max_size = max_size
        self.states = np.zeros((max_size, STATES), dtype="float32")
        self.next_states = np.zeros((max_size, STATES), dtype="float32")
        self.actions = np.zeros((max_size,), dtype="int32")
        self.rewards = np.zeros((max_size,), dtype="float32")
        self.size = self.position = 0

    def append(self, state, action, reward, next_state):
        self.states[self.position], self.next_states[self.position] = state, next_state
        self.actions[self.position], self.rewards[self.position] = action, reward
        self.position = (self.position + 1) % self.max_size
        self.size = min(self.size + 1, self.max_size)

    def sample(self, rng, batch):
        chosen = rng.randint(self.size, size=batch)
        return self.states[chosen], self.actions[chosen], self.rewards[chosen], self.next_states[chosen]


class Walk:
    def __init__(self):
        self.place = 0

    def state(self):
        return np.eye(STATES, dtype="float32")[self.place]

    def act(self, action):
        self.place = min(max(self.place + (1 if action else -1), 0), STATES - 1)
        reward = float(self.place == STATES - 1)
        if reward:
            self.place = 0
        return reward


class DQNTrainer(TowerTrainer):
    def __init__(self, memory_size=200, batch=16):
        super().__init__()
        self.memory, self.batch = ReplayMemory(memory_size), batch
        self.rng = np.random.RandomState(1)
        self.player, self.scores = Walk(), StatCounter()
        self.placeholders = [
            tf.placeholder(tf.float32, [None, STATES], "state"),
            tf.placeholder(tf.int32, [None], "action"),
            tf.placeholder(tf.float32, [None], "reward"),
            tf.placeholder(tf.float32, [None, STATES], "next_state"),
        ]
        signature = [
            tf.TensorSpec(each.shape, each.dtype, name)
            for each, name in zip(self.placeholders, ["state", "action", "reward", "next_state"], strict=True)
        ]
        with TowerContext("", is_training=True):
            self.tower_func = TowerFunc(self.build, signature)
            self.tower_func(*self.placeholders)
        with tf.name_scope("learn"):
            variables = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, "online")
            opt = tf.train.AdamOptimizer(0.02, epsilon=1e-3)
            self.train_op = opt.minimize(self.cost, var_list=variables, name="train_op")
        self.state_op = tf.assign_add(tf.get_variable("played", initializer=0, trainable=False), 1, name="count")

    @staticmethod
    def network(state):
        init = tf.constant_initializer(np.random.RandomState(4).uniform(-0.5, 0.5, size=(STATES, 8)))
        x = FullyConnected("fc0", state, 8, activation=tf.nn.relu, kernel_initializer=init)
        return FullyConnected("fc1", x, ACTIONS, kernel_initializer=tf.constant_initializer(0.1))

    def build(self, state, action, reward, next_state):
        with tf.variable_scope("online"):
            q = tf.identity(self.network(state), name="Qvalue")
        with tf.variable_scope("target"):
            target = self.network(next_state)
        chosen = tf.reduce_sum(q * tf.one_hot(action, ACTIONS), 1)
        wanted = reward + GAMMA * tf.stop_gradient(tf.reduce_max(target, 1))
        self.cost = tf.reduce_mean(tf.losses.huber_loss(wanted, chosen, reduction="none"), name="cost")
        add_moving_summary(self.cost, tf.reduce_max(q, name="max_q"))

    def update_target_op(self):
        online, target = (tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope) for scope in ("online", "target"))
        return tf.group(
            *[old.assign(new) for old, new in zip(target, online, strict=True)], name="update_target_network"
        )

    def run_step(self):
        for _ in range(2):
            state = self.player.state()
            q, _ = self.sess.run([self.q, self.state_op], {self.q_input: state[np.newaxis]})
            action = self.rng.randint(ACTIONS) if self.rng.rand() < 0.3 else int(q[0].argmax())
            reward = self.player.act(action)
            self.scores.feed(reward)
            self.memory.append(state, action, reward, self.player.state())
        for _ in range(2):
            batch = self.memory.sample(self.rng, self.batch)
            self.hooked_sess.run(self.train_op, feed_dict=dict(zip(self.placeholders, batch, strict=True)))


class Explore(Callback):
    """Create the network that plays, and report its score."""

    def _setup_graph(self):
        trainer = self.trainer
        trainer.q_input = tf.placeholder(tf.float32, [None, STATES], "play_state")
        with tf.variable_scope("online", reuse=True), TowerContext("play", is_training=False):
            trainer.q = tf.identity(trainer.network(trainer.q_input), name="play_q")
        self.predict = trainer.get_predictor(["state"], ["online/Qvalue"])

    def _trigger_epoch(self):
        (q,) = self.predict(np.eye(STATES, dtype="float32"))
        self.trainer.monitors.put_scalar("mean_score", self.trainer.scores.average)
        self.trainer.monitors.put_scalar("best_q", float(q.max()))
        self.trainer.scores.reset()


if __name__ == "__main__":
    logger.auto_set_dir("d")
    trainer = DQNTrainer()
    update = RunOp(trainer.update_target_op, run_before=True, run_as_trigger=True, verbose=True)
    trainer.train_with_defaults(
        callbacks=[ModelSaver(), Explore(), PeriodicTrigger(update, every_k_steps=10)],
        steps_per_epoch=20,
        max_epoch=2,
    )
