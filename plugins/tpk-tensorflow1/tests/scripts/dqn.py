"""A deep Q network: a replay memory, a target network that is copied by assignments, and exploration that fades."""

import random
from collections import deque

import numpy as np
import tensorflow as tf

STATES, ACTIONS, GAMMA = 5, 2, 0.9


class Corridor(object):
    """Walk to the right end of a corridor."""

    def reset(self):
        self.position = 1
        return np.eye(STATES)[self.position]

    def step(self, action):
        self.position = min(max(self.position + (1 if action else -1), 0), STATES - 1)
        done = self.position in (0, STATES - 1)
        return np.eye(STATES)[self.position], float(self.position == STATES - 1), done, {}


class DeepQNetwork(object):
    def __init__(self, replace_target_iter=10, memory_size=60, batch_size=16):
        self.replace_target_iter, self.batch_size = replace_target_iter, batch_size
        self.learn_step_counter, self.epsilon = 0, 1.0
        self.memory = deque(maxlen=memory_size)
        self._build_net()
        t_params = tf.get_collection("target_net_params")
        e_params = tf.get_collection("eval_net_params")
        self.replace_target_op = [tf.assign(t, e) for t, e in zip(t_params, e_params)]
        self.sess = tf.Session()
        self.sess.run(tf.global_variables_initializer())
        self.cost_his = []

    def _build_layers(self, s, c_names):
        w_initializer, b_initializer = tf.random_normal_initializer(0.0, 0.3), tf.constant_initializer(0.1)
        with tf.variable_scope("l1"):
            w1 = tf.get_variable("w1", [STATES, 10], initializer=w_initializer, collections=c_names)
            b1 = tf.get_variable("b1", [1, 10], initializer=b_initializer, collections=c_names)
            l1 = tf.nn.relu(tf.matmul(s, w1) + b1)
        with tf.variable_scope("Value"):
            w2 = tf.get_variable("w2", [10, 1], initializer=w_initializer, collections=c_names)
            value = tf.matmul(l1, w2)
        with tf.variable_scope("Advantage"):
            w2 = tf.get_variable("w2", [10, ACTIONS], initializer=w_initializer, collections=c_names)
            advantage = tf.matmul(l1, w2)
        return value + (advantage - tf.reduce_mean(advantage, axis=1, keep_dims=True))

    def _build_net(self):
        self.s = tf.placeholder(tf.float32, [None, STATES], name="s")
        self.s_ = tf.placeholder(tf.float32, [None, STATES], name="s_")
        self.q_target = tf.placeholder(tf.float32, [None], name="Q_target")
        self.a = tf.placeholder(tf.int32, [None], name="a")
        with tf.variable_scope("eval_net"):
            self.q_eval = self._build_layers(self.s, ["eval_net_params", tf.GraphKeys.GLOBAL_VARIABLES])
        with tf.variable_scope("target_net"):
            self.q_next = self._build_layers(self.s_, ["target_net_params", tf.GraphKeys.GLOBAL_VARIABLES])
        with tf.variable_scope("loss"):
            indices = tf.stack([tf.range(tf.shape(self.a)[0], dtype=tf.int32), self.a], axis=1)
            q_of_action = tf.gather_nd(params=self.q_eval, indices=indices)
            self.loss = tf.reduce_mean(tf.squared_difference(self.q_target, q_of_action, name="TD_error"))
        with tf.variable_scope("train"):
            params = tf.get_collection("eval_net_params")
            self._train_op = tf.train.RMSPropOptimizer(0.01).minimize(self.loss, var_list=params)

    def choose_action(self, observation):
        if np.random.uniform() < self.epsilon:
            return np.random.randint(0, ACTIONS)
        return np.argmax(self.sess.run(self.q_eval, feed_dict={self.s: observation[np.newaxis, :]}))

    def learn(self):
        if self.learn_step_counter % self.replace_target_iter == 0:
            self.sess.run(self.replace_target_op)
        s, a, r, s_, done = (np.array(each) for each in zip(*random.sample(list(self.memory), self.batch_size)))
        q_next = self.sess.run(self.q_next, feed_dict={self.s_: s_})
        target = r + GAMMA * np.max(q_next, axis=1) * (1 - done)
        _, cost = self.sess.run([self._train_op, self.loss], {self.s: s, self.a: a, self.q_target: target})
        self.cost_his.append(cost)
        self.epsilon = max(self.epsilon - 0.02, 0.1)
        self.learn_step_counter += 1


random.seed(3)
env, RL = Corridor(), DeepQNetwork()
rewards = []
for _episode in range(25):
    observation, total = env.reset(), 0
    for _ in range(12):
        action = RL.choose_action(observation)
        observation_, reward, done, info = env.step(action)
        RL.memory.append((observation, action, reward, observation_, done))
        total += reward
        if len(RL.memory) > 20:
            RL.learn()
        observation = observation_
        if done:
            break
    rewards.append(total)
q = RL.sess.run(RL.q_eval, {RL.s: np.eye(STATES)})
RL.sess.close()
costs = np.array(RL.cost_his)
np.savez("results.npz", history=costs, costs=[costs[:10].mean(), costs[-10:].mean()], q=q, rewards=rewards)
