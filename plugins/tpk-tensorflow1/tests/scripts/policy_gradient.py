"""Policy gradients with buffered gradients, and an actor-critic with one step per update."""

import numpy as np
import tensorflow as tf
import tensorflow.contrib.slim as slim


class Bandit(object):
    """A contextual bandit with a best arm for each state, and a walk that pays when it goes up."""

    def __init__(self, states=3):
        self.states, self.state = states, 0

    def get(self):
        self.state = np.random.randint(0, self.states)
        return self.state

    def pull(self, action):
        return 1.0 if action == self.state else -1.0


def discount_rewards(r, gamma=0.9):
    discounted_r = np.zeros_like(r)
    running_add = 0
    for t in reversed(range(0, r.size)):
        running_add = running_add * gamma + r[t]
        discounted_r[t] = running_add
    return discounted_r


class Agent(object):
    def __init__(self, lr, s_size, a_size):
        self.state_in = tf.placeholder(shape=[None], dtype=tf.int32)
        state_in_OH = slim.one_hot_encoding(self.state_in, s_size)
        output = slim.fully_connected(
            state_in_OH,
            a_size,
            biases_initializer=None,
            activation_fn=tf.nn.softmax,
            weights_initializer=tf.ones_initializer(),
        )
        self.output = output
        self.chosen_action = tf.argmax(output, 1)
        self.reward_holder = tf.placeholder(shape=[None], dtype=tf.float32)
        self.action_holder = tf.placeholder(shape=[None], dtype=tf.int32)
        self.indexes = tf.range(0, tf.shape(output)[0]) * tf.shape(output)[1] + self.action_holder
        self.responsible_outputs = tf.gather(tf.reshape(output, [-1]), self.indexes)
        self.loss = -tf.reduce_mean(tf.log(self.responsible_outputs) * self.reward_holder)
        tvars = tf.trainable_variables()
        self.gradient_holders = []
        for idx, _var in enumerate(tvars):
            self.gradient_holders.append(tf.placeholder(tf.float32, name=str(idx) + "_holder"))
        self.gradients = tf.gradients(self.loss, tvars)
        optimizer = tf.train.AdamOptimizer(learning_rate=lr)
        self.update_batch = optimizer.apply_gradients(zip(self.gradient_holders, tvars))


def reinforce():
    bandit, agent = Bandit(), Agent(0.1, 3, 3)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        grad_buffer = sess.run(tf.trainable_variables())
        for ix, grad in enumerate(grad_buffer):
            grad_buffer[ix] = grad * 0
        rewards = []
        for i in range(40):
            state, action, reward = [], [], []
            for _ in range(4):
                state.append(bandit.get())
                a_dist = sess.run(agent.output, feed_dict={agent.state_in: [state[-1]]})
                action.append(np.argmax(np.random.rand() < np.cumsum(a_dist[0])))
                reward.append(bandit.pull(action[-1]))
            feed_dict = {
                agent.reward_holder: discount_rewards(np.array(reward)),
                agent.action_holder: action,
                agent.state_in: np.vstack(state).ravel(),
            }
            for idx, grad in enumerate(sess.run(agent.gradients, feed_dict=feed_dict)):
                grad_buffer[idx] += grad
            if i % 2 == 1:
                sess.run(agent.update_batch, feed_dict=dict(zip(agent.gradient_holders, grad_buffer)))
                for ix, grad in enumerate(grad_buffer):
                    grad_buffer[ix] = grad * 0
            rewards.append(np.mean(reward))
        return rewards, sess.run(agent.output, {agent.state_in: [0, 1, 2]})


def actor_critic():
    s = tf.placeholder(tf.float32, [1, 3], "state")
    a = tf.placeholder(tf.int32, None, "act")
    td_error_in = tf.placeholder(tf.float32, None, "td_error")
    v_ = tf.placeholder(tf.float32, [1, 1], "v_next")
    r = tf.placeholder(tf.float32, None, "r")
    dense = {
        "kernel_initializer": tf.random_normal_initializer(0.0, 0.1),
        "bias_initializer": tf.constant_initializer(0.1),
    }
    with tf.variable_scope("Actor"):
        l1 = tf.layers.dense(inputs=s, units=8, activation=tf.nn.relu, name="l1", **dense)
        mu = tf.layers.dense(inputs=l1, units=1, activation=tf.nn.tanh, name="mu", **dense)
        sigma = tf.layers.dense(inputs=l1, units=1, activation=tf.nn.softplus, name="sigma", **dense)
        normal_dist = tf.contrib.distributions.Normal(tf.squeeze(mu * 2), tf.squeeze(sigma + 0.1))
        acts_prob = tf.layers.dense(inputs=l1, units=3, activation=tf.nn.softmax, name="acts_prob", **dense)
        log_prob = tf.log(acts_prob[0, a]) + 0.01 * normal_dist.entropy()
        exp_v = tf.reduce_mean(log_prob * td_error_in)
        train_actor = tf.train.AdamOptimizer(0.05).minimize(-exp_v)
    with tf.variable_scope("Critic"):
        l1 = tf.layers.dense(inputs=s, units=8, activation=tf.nn.relu, name="l1", **dense)
        v = tf.layers.dense(inputs=l1, units=1, activation=None, name="V", **dense)
        with tf.variable_scope("squared_TD_error"):
            td_error = r + 0.5 * v_ - v
            loss = tf.square(td_error)
        train_critic = tf.train.AdamOptimizer(0.05).minimize(loss)
    bandit, losses = Bandit(), []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        state = np.eye(3)[[bandit.get()]]
        for _ in range(60):
            probs = sess.run(acts_prob, {s: state}).astype(np.float64)
            action = np.random.choice(np.arange(probs.shape[1]), p=probs.ravel() / probs.sum())
            reward = bandit.pull(action)
            next_state = np.eye(3)[[bandit.get()]]
            next_v = sess.run(v, {s: next_state})
            td, cost, _ = sess.run([td_error, loss, train_critic], {s: state, v_: next_v, r: reward})
            sess.run([exp_v, train_actor], {s: state, a: action, td_error_in: td})
            losses.append(cost[0, 0])
            state = next_state
        return losses, np.stack([sess.run(acts_prob, {s: each[None]})[0] for each in np.eye(3)])


results = {}
for function in (reinforce, actor_critic):
    with tf.Graph().as_default():
        history, results[function.__name__] = function()
        results[function.__name__ + " history"] = history
        results[function.__name__ + " variables"] = [each.name for each in tf.global_variables()]
np.savez("results.npz", **results)
