"""`tf.contrib.distributions`, as far as `tf.distributions` has them, too."""

import numpy as np
import tensorflow as tf

ds = tf.contrib.distributions


def _values(shape=(4,), seed=0):
    return tf.constant(np.random.RandomState(seed).uniform(0.1, 0.9, shape), tf.float32)


def continuous():
    x = _values()
    made = {
        "normal": ds.Normal(loc=0.3, scale=1.5),
        "uniform": ds.Uniform(0.0, 2.0),
        "gamma": ds.Gamma(2.0, 1.5),
        "beta": ds.Beta(2.0, 3.0),
        "exponential": ds.Exponential(1.5),
        "laplace": ds.Laplace(0.2, 0.8),
        "student": ds.StudentT(4.0, 0.1, 1.2),
    }
    results = {name: [each.prob(x), each.log_prob(x), each.entropy(), each.mean()] for name, each in made.items()}
    results["quantiles"] = [made["normal"].quantile(x), made["uniform"].cdf(x), made["laplace"].log_cdf(x)]
    results["deviations"] = [made["normal"].stddev(), made["uniform"].variance(), made["beta"].mode()]
    results["samples"] = [tf.shape(each.sample([3, 2])) for _, each in sorted(made.items())]
    results["batch"] = ds.Normal([0.0, 1.0], [1.0, 2.0]).log_prob(x[:2])
    results["shapes"] = [ds.Normal([0.0, 1.0], 1.0).batch_shape.as_list(), made["gamma"].event_shape.as_list()]
    return results


def discrete():
    x = _values()
    coin = ds.Bernoulli(logits=x)
    choice = ds.Categorical(logits=tf.stack([x, 1 - x], 1))
    many = ds.Multinomial(5.0, probs=[0.2, 0.3, 0.5])
    return {
        "coin": [coin.prob([0, 1, 1, 0]), coin.entropy(), coin.mode(), coin.mean(), coin.variance()],
        "choice": [choice.log_prob([0, 1, 0, 1]), choice.entropy(), choice.mode(), choice.probs],
        "many": [many.log_prob([1.0, 2.0, 2.0]), many.mean(), many.variance()],
        "compound": ds.DirichletMultinomial(3.0, [1.0, 2.0]).log_prob([1.0, 2.0]),
        "dirichlet": ds.Dirichlet([1.0, 2.0, 3.0]).log_prob([0.2, 0.3, 0.5]),
        "drawn": tf.shape(choice.sample(7)),
        "name": coin.dtype.name,
    }


def training_with_samples():
    """The reparameterization trick, and the log probability of an action."""
    mean = tf.get_variable("mean", initializer=tf.constant([0.5, -0.5]))
    scale = tf.get_variable("scale", initializer=tf.constant([1.0, 2.0]))
    policy = ds.Normal(mean, tf.nn.softplus(scale))
    prior = tf.distributions.Normal(tf.zeros(2), tf.ones(2))
    divergence = tf.reduce_sum(ds.kl_divergence(policy, prior))
    choice = ds.Categorical(logits=mean)
    loss = (
        divergence
        + tf.reduce_sum(policy.sample(seed=3))
        - choice.log_prob(1)
        + choice.kl_divergence(ds.Categorical(probs=[0.5, 0.5]))
    )
    return {"divergence": divergence, "step": tf.train.GradientDescentOptimizer(0.05).minimize(loss)}
