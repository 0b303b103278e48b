"""Several objectives: against NumPy where the expectation is analytic, and many towers against one where it is not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import tensorflow as tf

import tpk
from tpk import layers
from tpk.graph.determinism import unordered_updates
from tpk.graph.objective import Objective
from tpk.graph.optimizers.accumulation import AccumGradOptimizer
from tpk.train.multi_objective import MultiObjectiveTrainer

v1 = tf.compat.v1

RATE = 0.1
COUPLING = 0.5
STEPS = 12
SIGNATURE = [tf.TensorSpec([None, 3], tf.float32, "a")]


def sgd():
    return v1.train.GradientDescentOptimizer(RATE)


def momentum():
    return v1.train.MomentumOptimizer(RATE, 0.9)


def game(a):
    """Two players, each of whom has a quadratic cost that depends on what the other one does."""
    x = v1.get_variable("first/x", initializer=tf.constant([1.0, -2.0, 0.5]))
    y = v1.get_variable("second/y", initializer=tf.constant([0.5, 1.0, -1.0]))
    # The inner products are mean values of the batch, as costs usually are.
    f = tf.add(tf.reduce_mean(tf.reduce_sum((x - a) ** 2, axis=1)) / 2, COUPLING * tf.reduce_sum(x * y), name="f")
    g = tf.add(tf.reduce_mean(tf.reduce_sum((y + a) ** 2, axis=1)) / 2, -COUPLING * tf.reduce_sum(x * y), name="g")
    return {"f": f, "g": g}


def play(data, *, update, every=(1, 1), decay=0.0, steps=STEPS):
    """What training on `data` owes: the final x and y, and the mean costs that each run fetches."""
    values = [np.array([1.0, -2.0, 0.5]), np.array([0.5, 1.0, -1.0])]
    velocities = [np.zeros(3), np.zeros(3)]
    fetched = []
    batches = iter(data)

    def gradient(player, a):
        (x, y), mean = values, a.mean(axis=0)
        return x - mean + COUPLING * y if player == 0 else y + mean - COUPLING * x

    def costs(a):
        x, y = values
        f = ((x - a) ** 2).sum(axis=1).mean() / 2 + COUPLING * x @ y
        g = ((y + a) ** 2).sum(axis=1).mean() / 2 - COUPLING * x @ y
        return f, g

    for step in range(1, steps + 1):
        due = [player for player in (0, 1) if step % every[player] == 0]
        for run in [due] if update == "together" else [[player] for player in due]:
            a = next(batches)
            fetched.append(costs(a))
            for player, slope in [(player, gradient(player, a)) for player in run]:
                velocities[player] = decay * velocities[player] + slope
                values[player] = values[player] - RATE * velocities[player]
    return values, np.array(fetched)


def batches(count, size=4):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(size, 3)).astype(np.float32) for _ in range(count)]


class Record(tpk.Callback):
    """Fetches the costs of all training towers along with each run; keeps the final values of all variables."""

    def __init__(self):
        self.fetched, self.runs_in_step = [], []

    def setup_graph(self, trainer):
        towers = trainer.towers.training()
        self.costs = [[tower["f"], tower["g"]] for tower in towers] if "f" in towers[0].output else []

    def before_run(self, run_context):
        return self.costs

    def after_run(self, run_context, run_values):
        self.runs_in_step.append(self.trainer.local_step)
        if self.costs:
            self.fetched.append(np.mean(run_values.results, axis=0))

    def after_train(self, trainer):
        read = trainer.sess.run
        self.saved = {variable.name: read(variable) for variable in v1.global_variables()}
        self.local = {variable.name: read(variable) for variable in v1.local_variables()}
        self.trained = [variable.name for variable in v1.trainable_variables()]
        self.steps_counted = trainer.global_step


def train(
    strategy,
    data,
    *,
    update,
    every=(1, 1),
    optimizer=sgd,
    func=game,
    source=tpk.FeedInput,
    objectives=None,
    steps=STEPS,
    precision="float32",
    callbacks=(),
    **options,
):
    record = Record()
    trainer = MultiObjectiveTrainer(strategy, update=update, precision=precision)
    objectives = objectives or [
        Objective(optimizer, name="f", variables="first/", every=every[0]),
        Objective(optimizer, name="g", variables="second/", every=every[1]),
    ]
    trainer.setup_graph(SIGNATURE, source([[each] for each in data]), func, objectives)
    trainer.train(callbacks=[*callbacks, record], steps_per_epoch=steps, **{"max_epoch": 1, **options})
    return record


STRATEGIES = {
    "single": ("single", 1),
    "replicated": (tpk.use("replicated", devices=2), 2),
    "parameter_server": (tpk.use("parameter_server", devices=2), 2),
}


@pytest.mark.parametrize(("decay", "every"), [(0.0, (1, 1)), (0.9, (3, 1)), (0.9, (1, 4))], ids=str)
@pytest.mark.parametrize("update", ["in_turn", "together"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_players_move_as_numpy_says(strategy, update, decay, every):
    name, towers = STRATEGIES[strategy]
    data = batches(2 * STEPS * towers)
    joined = [np.concatenate(data[start : start + towers]) for start in range(0, len(data), towers)]
    (x, y), costs = play(joined, update=update, every=every, decay=decay)
    record = train(name, data, update=update, every=every, optimizer=momentum if decay else sgd)
    np.testing.assert_allclose(record.saved["first/x:0"], x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(record.saved["second/y:0"], y, rtol=1e-4, atol=1e-5)
    # What a callback fetches is what the variables gave before the run changed them, in each run, for each cost.
    np.testing.assert_allclose(record.fetched, costs, rtol=1e-4, atol=1e-5)
    assert record.steps_counted == STEPS


@pytest.mark.parametrize("update", ["in_turn", "together"])
def test_input_from_a_queue_is_taken_in_the_same_way(update):
    data = batches(2 * STEPS)
    record = train("single", data, update=update, source=tpk.QueueInput)
    (x, y), _ = play(data, update=update)
    np.testing.assert_allclose(record.saved["first/x:0"], x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(record.saved["second/y:0"], y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("update", ["in_turn", "together"])
def test_each_objective_has_a_loss_scale_of_its_own(update):
    record = train("single", batches(2 * STEPS), update=update, every=(1, 2), precision="float16")
    good_steps = [record.saved[f"{name}/LossScale/good_steps:0"] for name in "fg"]
    # The scale starts so high that the first steps are skipped.
    assert 0 < good_steps[1] <= STEPS // 2 < good_steps[0] <= STEPS


@pytest.mark.parametrize(
    ("update", "expected"), [("in_turn", [0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 5]), ("together", [0, 1, 2, 3, 4, 5])]
)
def test_the_runs_of_each_step(update, expected):
    objectives = [
        Objective(sgd, name="f", variables="first/"),
        Objective(sgd, name="g", variables="second/", every=2),
        Objective(sgd, name="h", variables="third/", every=3),
    ]

    def three(a):
        z = v1.get_variable("third/z", initializer=1.0)
        return {**game(a), "h": z * tf.reduce_mean(a)}

    record = train("single", batches(30), update=update, func=three, objectives=objectives, steps=6)
    assert record.runs_in_step == expected


class Count(v1.train.Optimizer):
    """Counts in each variable how often it was updated."""

    def __init__(self):
        super().__init__(use_locking=False, name="Count")

    def _resource_apply_dense(self, grad, handle):
        with tf.control_dependencies([grad]):
            return handle.assign_add(tf.ones_like(handle), read_value=False)


@pytest.mark.usefixtures("resource_variables")
@pytest.mark.parametrize("update", ["in_turn", "together"])
@pytest.mark.parametrize("periods", [(1, 2, 3), (1, 2, 4), (6, 1, 4), (2, 3, 1)], ids=str)
def test_each_objective_is_minimized_in_each_kth_step_through_all_epochs(update, periods):
    def counters(a):
        costs = {}
        for number in range(3):
            count = v1.get_variable(f"count{number}", initializer=0.0)
            costs[f"cost{number}"] = count * tf.reduce_mean(a)
        return costs

    objectives = [
        Objective(Count, name=f"cost{number}", variables=f"count{number}", every=every)
        for number, every in enumerate(periods)
    ]
    # Epochs of five steps: their ends must not disturb the rhythm.
    record = train("single", batches(200), update=update, func=counters, objectives=objectives, steps=5, max_epoch=5)
    counts = [record.saved[f"count{number}:0"] for number in range(3)]
    assert counts == [25 // every for every in periods]


def test_a_resumed_training_keeps_the_rhythm(tmp_path):
    options = {"update": "together", "every": (1, 4), "optimizer": momentum, "steps": 6}
    data = batches(12)
    whole = train("single", data, **options, max_epoch=2)
    train("single", data, **options, callbacks=["ModelSaver"], run_dir=tmp_path)
    half = train("single", data[6:], **options, session_init=tpk.SaverRestore(tmp_path), starting_epoch=2, max_epoch=2)
    for name, value in whole.saved.items():
        np.testing.assert_array_equal(half.saved[name], value, err_msg=name)


# A pair that nobody solves by hand.


def adversaries(a):
    def initializer(seed):
        return v1.glorot_uniform_initializer(seed=seed)

    def generator(noise):
        with v1.variable_scope("generator"):
            hidden = layers.dense(noise, 5, activation=tf.tanh, kernel_initializer=initializer(1), name="hidden")
            return layers.dense(hidden, 3, kernel_initializer=initializer(2), name="output")

    def discriminator(values):
        with v1.variable_scope("discriminator", reuse=v1.AUTO_REUSE):
            hidden = layers.dense(values, 5, activation=tf.tanh, kernel_initializer=initializer(3), name="hidden")
            return layers.dense(hidden, 1, kernel_initializer=initializer(4), name="logit")[:, 0]

    real, fake = discriminator(a), discriminator(generator(a[:, ::-1]))
    return {
        "d": tf.reduce_mean(tf.nn.softplus(-real) + tf.nn.softplus(fake), name="d"),
        "g": tf.reduce_mean(tf.nn.softplus(-fake), name="g"),
    }


def adam():
    return v1.train.AdamOptimizer(0.02, beta1=0.5)


def train_pair(strategy, data, update, every=1, **options):
    objectives = [
        Objective(adam, name="d", variables="discriminator/", every=every),
        Objective(adam, name="g", variables="generator/"),
    ]
    return train(strategy, data, update=update, func=adversaries, objectives=objectives, **options)


@pytest.mark.parametrize("update", ["in_turn", "together"])
@pytest.mark.parametrize("strategy", ["replicated", "parameter_server"])
def test_a_pair_on_two_devices_equals_one_on_the_concatenation_and_replicates_stay_identical(strategy, update):
    data = batches(4 * STEPS)
    joined = [np.concatenate(data[start : start + 2]) for start in range(0, len(data), 2)]
    many = train_pair(STRATEGIES[strategy][0], data, update, every=2)
    one = train_pair("single", joined, update, every=2)
    assert many.trained == one.trained
    assert many.saved.keys() == one.saved.keys()
    for name, value in one.saved.items():
        np.testing.assert_allclose(many.saved[name], value, rtol=1e-3, atol=1e-4, err_msg=name)
    if strategy == "replicated":
        assert len(many.trained) == 8
        for name in many.trained:
            np.testing.assert_array_equal(many.local[f"tower1/{name}"], many.saved[name], err_msg=name)


def test_checkpoints_move_between_strategies(tmp_path):
    data = batches(60)
    one = train_pair("single", data, "in_turn", callbacks=["ModelSaver"], run_dir=tmp_path, steps=5)
    objectives = [Objective(lambda: v1.train.AdamOptimizer(0.0), name=name) for name in "dg"]
    many = train(
        STRATEGIES["replicated"][0],
        data,
        update="in_turn",
        func=adversaries,
        objectives=objectives,
        steps=1,
        session_init=tmp_path,
    )
    for name in one.trained:
        np.testing.assert_array_equal(many.saved[name], one.saved[name])
        np.testing.assert_array_equal(many.local[f"tower1/{name}"], one.saved[name])


@pytest.mark.parametrize("update", ["in_turn", "together"])
def test_objectives_may_share_variables(update):
    def shared(a):
        trunk = v1.get_variable("trunk", initializer=1.0)
        heads = [v1.get_variable(f"head{number}", initializer=0.0) for number in range(2)]
        return {"actor": 2 * trunk + heads[0], "critic": 3 * trunk + heads[1]}

    objectives = [Objective(sgd, name="actor", variables="trunk|head0"), Objective(sgd, name="critic")]
    record = train("single", batches(4), update=update, func=shared, objectives=objectives, steps=2)
    saved = [record.saved[f"{name}:0"] for name in ("trunk", "head0", "head1")]
    np.testing.assert_allclose(saved, [1 - 2 * RATE * (2 + 3), -2 * RATE, -2 * RATE], atol=1e-6)


def rivals(a):
    x, y = [v1.get_variable(name, initializer=tf.constant([1.0, -1.0])) for name in "xy"]
    pull = tf.reduce_sum((x - 4.0) * y) + tf.reduce_mean(a)
    return {"pull": pull, "push": tf.reduce_sum((x + 4.0) ** 2), "bind": tf.reduce_sum(x * y)}


RIVALS = {"pull": "xy", "push": "x", "bind": "xy"}


def move_rivals(every, steps):
    """The values of x and y after each step, and of their averages for each objective, as NumPy computes them."""
    value = {name: np.array([1.0, -1.0]) for name in "xy"}
    velocity = {(objective, name): np.zeros(2) for objective, names in RIVALS.items() for name in names}
    average, updates = {key: np.zeros(2) for key in velocity}, dict.fromkeys(RIVALS, 0)
    for step in range(1, steps + 1):
        x, y = value["x"], value["y"]
        gradient = {"pull": {"x": y, "y": x - 4}, "push": {"x": 2 * (x + 4)}, "bind": {"x": y, "y": x}}
        for objective, slopes in gradient.items():
            if step % every[objective]:
                continue
            decay = min(0.5, updates[objective] / (9 + updates[objective]))
            updates[objective] += 1
            for name, slope in slopes.items():
                key = objective, name
                velocity[key] = 0.9 * velocity[key] + slope
                value[name] = np.clip(value[name] - RATE * velocity[key], -1.5, 1.5)
                average[key] = decay * average[key] + (1 - decay) * value[name]
        yield {**value, **average}


class Rivalry(tpk.Callback):
    """Keeps the values of the variables after each step, and of their averages for each objective."""

    def __init__(self):
        self.optimizers, self.values = {name: [] for name in RIVALS}, []

    def objectives(self, every):
        return [
            Objective(partial(self.optimizer, name), name=name, variables=f"[{names}]", every=every[name])
            for name, names in RIVALS.items()
        ]

    def optimizer(self, objective):
        """One whose state shows in which order variables are updated."""
        clipped = tpk.VariableAssignmentOptimizer(momentum(), lambda variable: tf.clip_by_value(variable, -1.5, 1.5))
        self.optimizers[objective].append(tpk.MovingAverageOptimizer(clipped, decay=0.5))
        return self.optimizers[objective][-1]

    def setup_graph(self, trainer):
        variables = {each.op.name: each for each in [*v1.global_variables(), *v1.local_variables()]}
        self.towers = []
        for index, prefix in enumerate(["", "tower1/"][: len(self.optimizers["pull"])]):
            own = {name: variables[prefix + name] for name in "xy"}
            for objective, names in RIVALS.items():
                slot = self.optimizers[objective][index].get_slot
                own |= {(objective, name): slot(own[name], "average") for name in names}
            self.towers.append(own)

    def after_run(self, run_context, run_values):
        self.values.append(run_context.session.run(self.towers))


@pytest.mark.parametrize("every", [{"pull": 1, "push": 1, "bind": 1}, {"pull": 2, "push": 1, "bind": 3}], ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_objectives_that_share_variables_update_them_in_the_order_of_the_list(strategy, every):
    trainings = [Rivalry(), Rivalry()]
    for rivalry in trainings:
        options = {"func": rivals, "objectives": rivalry.objectives(every), "callbacks": [rivalry], "steps": 100}
        train(STRATEGIES[strategy][0], batches(200), update="together", **options)
    first, second = (rivalry.values for rivalry in trainings)
    for expected, towers, again in zip(move_rivals(every, 100), first, second, strict=True):
        for values, same in zip(towers, again, strict=True):
            for key, value in expected.items():
                np.testing.assert_allclose(values[key], value, rtol=1e-4, atol=1e-5, err_msg=str(key))
                np.testing.assert_array_equal(values[key], same[key], err_msg=str(key))


def train_op_of(strategy, func, objectives):
    trainer = MultiObjectiveTrainer(STRATEGIES[strategy][0], update="together")
    trainer.setup_graph(SIGNATURE, tpk.FeedInput([[each] for each in batches(2)]), func, objectives)
    return trainer.train_op


@pytest.mark.usefixtures("resource_variables")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_graph_orders_updates_of_one_variable_and_leaves_others_side_by_side(strategy):
    assert unordered_updates(train_op_of(strategy, rivals, Rivalry().objectives(dict.fromkeys(RIVALS, 1)))) == []
    apart = [Objective(sgd, name="f", variables="first/"), Objective(sgd, name="g", variables="second/")]
    train_op = train_op_of(strategy, game, apart)
    assert unordered_updates(train_op) == []
    updates = [op for op in ops_behind(train_op) if op.type == "ResourceApplyGradientDescent"]
    assert len(updates) == 2 * (2 if strategy == "replicated" else 1)
    assert not any(one is not other and one in ops_behind(other) for one in updates for other in updates)


def ops_behind(op):
    seen, pending = set(), [op]
    while pending:
        current = pending.pop()
        if current not in seen:
            seen.add(current)
            pending += [*(tensor.op for tensor in current.inputs), *current.control_inputs]
    return seen


def test_the_inference_tower_and_default_callbacks_come_along(tmp_path):
    class Predict(tpk.Callback):
        def setup_graph(self, trainer):
            self.predict = trainer.get_predictor(["a"], ["f"])

        def trigger_epoch(self, trainer):
            (self.value,) = self.predict(np.zeros([1, 3], np.float32))

    def summarized(a):
        costs = game(a)
        tpk.add_moving_summary(*costs.values())
        return costs

    predict = Predict()
    trainer = MultiObjectiveTrainer(tpk.use("replicated", devices=2))
    data = [[each] for each in batches(8)]
    objectives = [Objective(sgd, name="f", variables="first"), Objective(sgd, name="g", variables="second")]
    trainer.setup_graph(SIGNATURE, trainer.default_input(data), summarized, objectives)
    trainer.train_with_defaults(callbacks=[predict], steps_per_epoch=2, max_epoch=2, run_dir=tmp_path)
    assert np.isfinite(predict.value)
    assert [step for step, _ in trainer.monitors.get_history("f")] == [2, 4]


def test_a_schedule_reads_the_number_of_the_step_before_or_after_it_is_counted_and_no_chance_decides():
    def costs(a):
        return {name: v1.get_variable(name, initializer=0.0) + 0.0 for name in "pq"}

    def by_the_step():
        step = v1.train.get_or_create_global_step()
        slow = tf.linalg.matmul(*[tf.random.normal([400, 400])] * 2)
        with tf.control_dependencies([slow]):
            return v1.train.GradientDescentOptimizer(v1.train.polynomial_decay(0.0, step.read_value(), 1000, 1000.0))

    objectives = [Objective(by_the_step, name=name, variables=name) for name in "pq"]
    record = train("single", batches(1), update="in_turn", func=costs, objectives=objectives, steps=20)
    # The first run of a step counts it.
    assert record.saved["p:0"] == pytest.approx(-sum(range(20)), rel=1e-4)
    assert record.saved["q:0"] == pytest.approx(-sum(range(1, 21)), rel=1e-4)


# What is refused.


def set_up(objectives, func=game):
    trainer = MultiObjectiveTrainer()
    trainer.setup_graph(SIGNATURE, tpk.FeedInput([batches(1)]), func, objectives)
    return trainer


def test_an_unknown_way_to_update():
    with pytest.raises(tpk.ConfigError, match="update must be one of 'in_turn', 'together'"):
        MultiObjectiveTrainer(update="jointly")


@pytest.mark.parametrize(
    ("objectives", "message"),
    [
        ([], "objectives is empty"),
        ([Objective(sgd)], "position 0 has no name"),
        ([Objective(sgd, name="f"), Objective(sgd, name="f")], "several objectives are called 'f'"),
        ([("f", sgd)], "each a tpk.Objective"),
        ([Objective(sgd, name="f", every=2), Objective(sgd, name="g", every=3)], "'f' every 2, 'g' every 3"),
        ([Objective(lambda: "adam", name="f")], "the optimizer is 'adam'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_objectives_that_cannot_be(objectives, message):
    with pytest.raises(tpk.ConfigError, match=message):
        set_up(objectives)


def test_costs_and_variables_that_do_not_exist():
    with pytest.raises(tpk.TowerError, match="a dict of costs with 'h' in it"):
        set_up([Objective(sgd, name="h")])
    with pytest.raises(tpk.TowerError, match="first/x, second/y"):
        set_up([Objective(sgd, name="f", variables="third/")])


def test_gradients_that_would_be_accumulated_by_each_train_op():
    def accumulated():
        return AccumGradOptimizer(sgd(), 2)

    def set_up_together(every):
        objectives = [Objective(accumulated, name="f"), Objective(sgd, name="g", every=every)]
        trainer = MultiObjectiveTrainer(update="together")
        trainer.setup_graph(SIGNATURE, tpk.FeedInput([batches(1)]), game, objectives)

    set_up_together(every=1)
    with pytest.raises(tpk.ConfigError, match="each would accumulate separately"):
        set_up_together(every=2)


def test_towers_that_do_not_wait_for_each_other():
    trainer = MultiObjectiveTrainer(tpk.use("async", devices=2))
    objectives = [Objective(sgd, name="f"), Objective(sgd, name="g")]
    with pytest.raises(tpk.ConfigError, match="trains one objective"):
        trainer.setup_graph(SIGNATURE, trainer.default_input([batches(1)]), game, objectives)


def test_a_graph_is_set_up_once_and_before_the_training():
    with pytest.raises(tpk.TrainerStateError, match=r"Call setup_graph\(\) first"):
        MultiObjectiveTrainer().train(steps_per_epoch=1, max_epoch=1)
    objectives = [Objective(sgd, name="f")]
    trainer = set_up(objectives)
    with pytest.raises(tpk.TrainerStateError, match="set up already"):
        trainer.setup_graph(SIGNATURE, tpk.FeedInput([]), game, objectives)
    with pytest.raises(tpk.InputError, match="InputSource"):
        MultiObjectiveTrainer().setup_graph(SIGNATURE, [[1.0]], game, objectives)
