"""Optimizers, predictors, values of variables and images that also work with tensorpack on TensorFlow 2.

A tensorpack script: `python tools.py OUT.npz` with tensorpack, `python -m tpk_tensorpack tools.py OUT.npz` with what
this package.
"""

import sys

import numpy as np
import tensorflow as tf
from tensorpack.predict import OfflinePredictor, PredictConfig
from tensorpack.tfutils import varmanip
from tensorpack.tfutils.common import get_default_sess_config, get_op_tensor_name
from tensorpack.tfutils.dependency import dependency_of_fetches, dependency_of_targets
from tensorpack.tfutils.gradproc import GlobalNormClip, MapGradient, ScaleGradient
from tensorpack.tfutils.optimizer import AccumGradOptimizer, apply_grad_processors
from tensorpack.tfutils.sessinit import ChainInit, DictRestore, SaverRestoreRelaxed, SmartInit
from tensorpack.tfutils.symbolic_functions import rms
from tensorpack.tfutils.varreplace import freeze_variables, remap_variables
from tensorpack.utils import viz

v1 = tf.compat.v1
results = {}


def variables():
    w = v1.get_variable("w", [3], initializer=v1.constant_initializer([1.0, 2.0, 3.0]))
    b = v1.get_variable("b", [], initializer=v1.constant_initializer(0.5))
    return w, b


optimizers = {
    "sum": lambda opt: AccumGradOptimizer(opt, 3),
    "clip": lambda opt: apply_grad_processors(opt, [GlobalNormClip(0.5), ScaleGradient([("w", 2.0), ("b", 0.0)])]),
    "map": lambda opt: apply_grad_processors(opt, [MapGradient(lambda grad: tf.sign(grad), "w")]),
}
for name, wrap in optimizers.items():
    # One thread: tensorpack's AccumGradOptimizer may read its counter before or after it is increased.
    config = v1.ConfigProto(inter_op_parallelism_threads=1)
    with tf.Graph().as_default(), v1.Session(config=config) as sess:
        w, b = variables()
        x = v1.placeholder(tf.float32, [3])
        train_op = wrap(v1.train.MomentumOptimizer(0.1, 0.9)).minimize(tf.reduce_sum(w * w * x) + b * x[0])
        sess.run(v1.global_variables_initializer())
        for step in range(7):
            sess.run(train_op, {x: np.arange(3, dtype="float32") + step})
            results[f"{name} {step}"] = np.append(*sess.run([w, b]))


def tower(x, y):
    w, b = variables()
    with freeze_variables(skip_collection=True):
        frozen = v1.get_variable("frozen", [3], initializer=v1.ones_initializer())
    with remap_variables(lambda variable: variable * 2):
        doubled = v1.get_variable("doubled", [3], initializer=v1.ones_initializer())
    out = tf.identity(x * w + b + frozen * doubled, name="out")
    results["trainable"] = sorted(variable.name for variable in v1.trainable_variables())
    tf.identity(rms(out + y), name="rms")


signature = [tf.TensorSpec([None, 3], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]
ones = np.ones([2, 3])
for name, init in {
    "values": DictRestore({"w:0": np.zeros(3, "float32")}),
    "chain": ChainInit([DictRestore({"w": np.zeros(3, "float32")}), DictRestore({"b": np.float32(4)})]),
    "relaxed": SmartInit({"w": np.zeros([3, 1], "float32"), "frozen": np.zeros(2, "float32")}, ignore_mismatch=True),
}.items():
    config = PredictConfig(
        tower_func=tower,
        input_signature=signature,
        output_names=["out", "rms"],
        session_init=ChainInit([DictRestore({"b": np.float32(1), "doubled": np.float32([1, 2, 3])}), init]),
        return_input=True,
    )
    predict = OfflinePredictor(config)
    inputs, outputs = predict(ones, [[1.0], [2.0]])
    results[f"{name} inputs"] = len(inputs)
    for number, output in enumerate(outputs):
        results[f"{name} {number}"] = output

with tf.Graph().as_default() as graph, v1.Session() as sess:
    w, b = variables()
    sess.run(v1.global_variables_initializer())
    a = tf.identity(w, name="a")
    results["dependency"] = [
        dependency_of_targets(a, w.op),
        dependency_of_targets(a, b.op),
        dependency_of_fetches(a, w.op),
    ]
    with sess.as_default():
        varmanip.dump_session_params("values.npz")
    varmanip.save_chkpt_vars({"w": np.zeros([1, 3], "float32"), "b": np.float32(9)}, "saved/model-12")
    results["loaded"] = sorted(varmanip.load_chkpt_vars("saved/model-12"))
    results["checkpoints"] = str(varmanip.get_all_checkpoints("saved"))
    results["path"] = varmanip.get_checkpoint_path("saved/model-12.index")
    SaverRestoreRelaxed("saved/model-12").init(sess)
    results["restored"] = np.append(*sess.run([w, b]))
    varmanip.SessionUpdate(sess, [w]).update({"w:0": np.ones(3, "float32")})
    results["updated"] = sess.run(w)
    for name, value in np.load("values.npz").items():
        results[f"dumped {name.replace(':0', '')}"] = value

names = [
    "w",
    "global_step",
    "a/Momentum",
    "EMA/cost/x",
    "a/Adam",
    "a/Adam_1",
    "a/AccumGrad",
    "beta1_power",
    "x/RMSProp",
]
results["of training"] = [varmanip.is_training_name(name) for name in names]
results["names"] = [*get_op_tensor_name("a"), *get_op_tensor_name("a:1")]
config = get_default_sess_config(0.5)
results["config"] = [
    config.allow_soft_placement,
    config.gpu_options.allow_growth,
    config.intra_op_parallelism_threads == 1,
]

rng = np.random.RandomState(0)
patches = [rng.randint(256, size=(6, 5, 3)).astype("uint8") for _ in range(5)]
results["stack"] = viz.stack_patches(patches, 2, 3)
results["border"] = viz.stack_patches(patches, 2, 3, border=4, bgcolor=(1, 2, 3))
results["gray"] = viz.stack_patches([patch[:, :, 0] for patch in patches], 3, 2, border=2)
results["pad"] = viz.stack_patches([patches[0], patches[1][:3, :4]], 1, 2, pad=True)
for number, canvas in enumerate(viz.gen_stack_patches(patches, max_width=13, max_height=14)):
    results[f"canvas {number}"] = np.array(canvas.shape)
np.savez(sys.argv[1], **results)
