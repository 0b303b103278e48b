"""Saving: checkpoints, a graph from its meta file, a frozen graph, a saved model, and a part of the variables."""

from __future__ import print_function

import os

import numpy as np
import tensorflow as tf
from tensorflow.python import pywrap_tensorflow
from tensorflow.python.framework import graph_util
from tensorflow.python.platform import gfile
from tensorflow.python.tools import inspect_checkpoint

results = {}
values = np.random.rand(8, 3)

tf.set_random_seed(1)
x = tf.placeholder(tf.float64, [None, 3], name="x")
w1 = tf.get_variable("w1", [3, 2], tf.float64, tf.glorot_normal_initializer())
hidden = tf.nn.sigmoid(tf.matmul(x, w1), name="hidden")
w2 = tf.Variable(np.ones([2, 1]), name="w2")
output = tf.matmul(hidden, w2, name="output")
loss = tf.reduce_mean(tf.square(output - 0.5), name="loss")
global_step = tf.Variable(0, name="global_step", trainable=False)
train = tf.train.RMSPropOptimizer(0.05, decay=0.8, momentum=0.5, epsilon=1e-6).minimize(loss, global_step=global_step)
tf.add_to_collection("to_train", train)
tf.add_to_collection("to_train", loss)
saver = tf.train.Saver(max_to_keep=2, keep_checkpoint_every_n_hours=1)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    costs = []
    for step in range(6):
        costs.append(sess.run([loss, train], {x: values})[0])
        saver.save(sess, "./my_model", global_step=global_step, write_meta_graph=step in (4, 5))
    results["before"] = sess.run(output, {x: values[:2]})
    results["checkpoints"] = [os.path.basename(path) for path in saver.last_checkpoints]
    frozen = graph_util.convert_variables_to_constants(sess, tf.get_default_graph().as_graph_def(), ["output"])
    with gfile.FastGFile("frozen.pb", "wb") as f:
        f.write(frozen.SerializeToString())
    tf.train.write_graph(sess.graph_def, ".", "graph.pbtxt", as_text=True)
    builder = tf.saved_model.builder.SavedModelBuilder("saved")
    signature = tf.saved_model.signature_def_utils.build_signature_def(
        inputs={"x": tf.saved_model.utils.build_tensor_info(x)},
        outputs={"y": tf.saved_model.utils.build_tensor_info(output)},
        method_name=tf.saved_model.signature_constants.PREDICT_METHOD_NAME,
    )
    builder.add_meta_graph_and_variables(sess, [tf.saved_model.tag_constants.SERVING], {"predict": signature})
    builder.save()

with tf.Graph().as_default() as graph, tf.Session() as sess:
    ckpt = tf.train.get_checkpoint_state(".")
    if ckpt and ckpt.model_checkpoint_path:
        restorer = tf.train.import_meta_graph(ckpt.model_checkpoint_path + ".meta", clear_devices=True)
        restorer.restore(sess, tf.train.latest_checkpoint("./"))
        print("restored", ckpt.model_checkpoint_path.split("/")[-1].split("-")[-1])
    restored_train, restored_loss = tf.get_collection("to_train")
    x = graph.get_tensor_by_name("x:0")
    results["after"] = sess.run("output:0", {"x:0": values[:2]})
    for _ in range(3):
        costs.append(sess.run([restored_loss, restored_train], {x: values})[0])
    results["step"] = tf.train.global_step(sess, graph.get_tensor_by_name("global_step:0"))
    results["slots"] = [v.name for v in tf.global_variables()]

with tf.Graph().as_default(), tf.Session() as sess:
    graph_def = tf.GraphDef()
    with tf.gfile.GFile("frozen.pb", "rb") as f:
        graph_def.ParseFromString(f.read())
    (found,) = tf.import_graph_def(graph_def, return_elements=["output:0"], name="imported")
    results["frozen"] = sess.run(found, {"imported/x:0": values[:2]})
    results["operations"] = [op.name for op in tf.get_default_graph().get_operations() if op.type == "MatMul"]
    meta = tf.saved_model.loader.load(sess, [tf.saved_model.tag_constants.SERVING], "saved")
    name = meta.signature_def["predict"].outputs["y"].name
    results["saved"] = sess.run(name, {meta.signature_def["predict"].inputs["x"].name: values[:2]})

with tf.Graph().as_default(), tf.Session() as sess:
    inspect_checkpoint.print_tensors_in_checkpoint_file(tf.train.latest_checkpoint("."), "w1", all_tensors=False)
    reader = pywrap_tensorflow.NewCheckpointReader(tf.train.latest_checkpoint("."))
    results["shapes"] = sorted("%s %s" % each for each in reader.get_variable_to_shape_map().items())
    renamed = tf.get_variable("other", initializer=tf.zeros([3, 2], tf.float64))
    tf.contrib.framework.init_from_checkpoint(tf.train.latest_checkpoint("."), {"w1": renamed})
    sess.run(tf.global_variables_initializer())
    results["renamed"] = sess.run(renamed)
np.savez("results.npz", costs=costs, **results)
