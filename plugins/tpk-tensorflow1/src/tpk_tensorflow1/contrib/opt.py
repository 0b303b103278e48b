"""`tf.contrib.opt`: its optimizers are not available, but have replacements."""

from __future__ import annotations

from tpk_tensorflow1.missing import finder_in

__getattr__ = finder_in(
    "tf.contrib.opt",
    (),
    {
        "MovingAverageOptimizer": "tpk.MovingAverageOptimizer, around the optimizer",
        "AdamWOptimizer": "tf.train.AdamOptimizer, and regularize_cost",
        "MomentumWOptimizer": "tf.train.MomentumOptimizer, and regularize_cost",
        "NadamOptimizer": "tf.train.AdamOptimizer",
        "LazyAdamOptimizer": "tf.train.AdamOptimizer",
    },
)
