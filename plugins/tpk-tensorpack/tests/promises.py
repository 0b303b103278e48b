"""Documented features that fail in tensorpack 0.11 and work here, with one function for each.

A tensorpack script that writes the results as JSON: `python promises.py OUT.json` with tensorpack,
`python -m tpk_tensorpack promises.py OUT.json` with this package.
"""

import inspect
import json
import os
import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorpack import (
    BatchData,
    Conv2D,
    DataFromList,
    DumpParamAsImage,
    FakeData,
    HookToCallback,
    LMDBData,
    MapData,
    Maxout,
    MergeAllSummaries,
    ModelDesc,
    MonitorBase,
    MultiProcessMapAndBatchData,
    PredictConfig,
    PrintData,
    QueueInput,
    SimpleTrainer,
    TrainConfig,
    launch_train_with_config,
    logger,
)
from tensorpack.dataflow import imgaug
from tensorpack.dataflow.dataset import ILSVRC12
from tensorpack.tfutils.export import ModelExporter
from tensorpack.utils.gpu import get_num_gpu

v1 = tf.compat.v1
IMAGES = np.arange(4 * 6 * 6 * 4, dtype="float32").reshape(4, 6, 6, 4)
IMAGE = np.arange(20 * 30 * 3, dtype="uint8").reshape(20, 30, 3)


def maxout_takes_the_largest_of_each_group():
    (out,) = run(Maxout(tf.constant(IMAGES), 2))
    np.testing.assert_array_equal(out, IMAGES.reshape(4, 6, 6, 2, 2).max(-1))


def convolutions_in_groups_have_outputs_and_gradients_on_cpus():
    out = Conv2D("conv", tf.constant(IMAGES), 6, 3, split=2)
    values = run(out, tf.gradients(out, out.variables.W)[0])
    assert [value.shape for value in values] == [(4, 6, 6, 6), (3, 3, 2, 6)]


def the_size_of_a_cutout_is_drawn_from_a_range():
    cut = augmented(imgaug.RandomCutout((3, 6), (4, 6), fill=0.5), np.ones([40, 40, 3], "float32"))
    assert (cut == 0.5).any()


def an_affine_map_is_drawn():
    assert augmented(imgaug.Affine((0.8, 1.2), rotate_max_deg=20.0, shear=5.0), IMAGE).shape == IMAGE.shape


def made_up_data_may_have_numbers():
    ((number, vector),) = points(FakeData([[], [3]], size=1, dtype=["float32", "uint8"]))
    assert np.shape(number) == ()
    assert vector.shape == (3,)


def empty_arrays_are_described():
    assert len(points(PrintData(DataFromList([[np.zeros([0, 3])]])))) == 1


def arrays_of_text_are_described():
    assert len(points(PrintData(DataFromList([[np.array(["a", "b"])]])))) == 1


def keys_of_a_pattern_are_shuffled():
    flow = LMDBData(database(), shuffle=True, keys="{:0>8d}")
    assert sorted(bytes(value) for _, value in points(flow)) == [b"0", b"1", b"2"]


def keys_are_a_list_of_text():
    flow = LMDBData(database(), shuffle=True, keys=["00000000", "00000002"])
    assert sorted(bytes(value) for _, value in points(flow)) == [b"0", b"2"]


def the_buffer_of_batches_of_workers_has_a_default_size():
    flow = MultiProcessMapAndBatchData(DataFromList([[1], [2], [3], [4]], shuffle=False), 1, as_it_is, 2)
    expected = BatchData(MapData(DataFromList([[1], [2], [3], [4]], shuffle=False), as_it_is), 2)
    flow.reset_state()
    (first,) = next(iter(flow))
    assert first.tolist() == points(expected)[0][0].tolist()


def boxes_of_imagenet_are_found():
    directory = tempfile.mkdtemp()
    os.mkdir(os.path.join(directory, "n01"))
    with open(os.path.join(directory, "n01", "n01_1.xml"), "w") as file:
        file.write(
            "<annotation><size><width>100</width><height>50</height></size><object><bndbox><xmin>10</xmin>"
            "<ymin>5</ymin><xmax>50</xmax><ymax>25</ymax></bndbox></object></annotation>"
        )
    (box,) = ILSVRC12.get_training_bbox(directory, [("n01/n01_1.JPEG", 0)])
    assert box.tolist() == [10, 5, 50, 25]


def there_may_be_no_gpu():
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    try:
        assert get_num_gpu() == 0
    finally:
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before


def summaries_are_run_alone():
    class Names(MonitorBase):
        found = set()

        def process_scalar(self, name, value):
            self.found.add(name)

    train([MergeAllSummaries(run_alone=True)], monitors=[Names()])
    assert "summarized" in Names.found


def a_parameter_is_written_as_an_image():
    class Model(Line):
        def build_graph(self, x):
            v1.get_variable("image", [4, 5], trainable=False)
            return Line.build_graph(self, x)

    train([DumpParamAsImage("image")], Model())
    assert [name for name in os.listdir(logger.get_logger_dir()) if name.startswith("image-ep") and ".png" in name]


def a_hook_of_tensorflow_is_a_callback():
    seen = []

    class Counting(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            seen.append(1)

    train([HookToCallback(Counting())])
    assert len(seen) == 3


def a_model_is_exported_as_one_file():
    path = os.path.join(tempfile.mkdtemp(), "model.pb")
    config = PredictConfig(model=Line(), input_names=["x"], output_names=["out"])
    ModelExporter(config).export_compact(path)
    with open(path, "rb") as file:
        graph_def = v1.GraphDef.FromString(file.read())
    with tf.Graph().as_default(), v1.Session() as session:
        (out,) = tf.import_graph_def(graph_def, {"x:0": tf.zeros([2, 3])}, ["out:0"])
        assert session.run(out).shape == (2, 3)


class Line(ModelDesc):
    def inputs(self):
        return [tf.TensorSpec([None, 3], tf.float32, "x")]

    def build_graph(self, x):
        out = tf.identity(x * v1.get_variable("w", [3]), name="out")
        v1.summary.scalar("summarized", out[0, 0])
        return tf.reduce_sum(out, name="cost")

    def optimizer(self):
        return v1.train.GradientDescentOptimizer(0.01)


def train(callbacks, model=None, monitors=()):
    config = TrainConfig(
        model=model or Line(),
        data=QueueInput(FakeData([[2, 3]], size=100)),
        callbacks=callbacks,
        extra_callbacks=[],
        monitors=list(monitors),
        steps_per_epoch=3,
        max_epoch=1,
    )
    launch_train_with_config(config, SimpleTrainer())


def run(*tensors):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(tensors)


def augmented(augmentor, image):
    augmentor.reset_state()
    return augmentor.augment(image)


def points(flow):
    flow.reset_state()
    return list(flow)


def as_it_is(point):
    return point


def database():
    import lmdb

    path = os.path.join(tempfile.mkdtemp(), "data")
    with lmdb.open(path) as environment, environment.begin(write=True) as transaction:
        for number in range(3):
            transaction.put(b"%08d" % number, b"%d" % number)
    return path


HELPERS = [train, run, augmented, points, as_it_is, database]
PROMISES = {
    name: value
    for name, value in list(globals().items())
    if inspect.isfunction(value) and value.__module__ == __name__ and value not in HELPERS
}

if __name__ == "__main__":
    logger.set_logger_dir("log", action="d")
    results = {}
    for name, promise in PROMISES.items():
        try:
            with tf.Graph().as_default():
                promise()
            results[name] = None
        except Exception as error:
            results[name] = f"{type(error).__name__}: {error}"[:200]
    with open(sys.argv[1], "w") as file:
        json.dump(results, file)
    os._exit(0)  # Do not wait for tensorpack's processes.
