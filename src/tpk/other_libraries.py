"""What users of other libraries write, and what to write in tpk instead."""

from __future__ import annotations

_EVALUATION = "add an evaluation to callbacks, as in tpk.InferenceRunner(validation, tpk.ScalarStats('cost'))"
_FOR_THE_TRAINER = (
    "give it to the trainer, as in tpk.launch_train_with_config(config, tpk.use('replicated', devices=2, "
    "precision='bfloat16'))."
)
_OPTIONS = {
    "epochs max_epochs num_epochs num_train_epochs nr_epoch n_epochs": "write max_epoch.",
    "steps step_per_epoch num_steps max_steps train_steps": "write steps_per_epoch and max_epoch.",
    "limit_train_batches": "write steps_per_epoch, or overfit_batches for a test.",
    "dataset train_data train_dataloaders inputs": "write dataflow, or data for a tpk.InputSource.",
    "x y shuffle": "write dataflow=tpk.BatchData(tpk.DataFromList(list(zip(x, y)), shuffle=True), 32).",
    "batch_size": "write dataflow=tpk.BatchData(flow, batch_size).",
    "validation_data validation_split val_data val_dataloaders eval_dataset eval_data": f"{_EVALUATION}.",
    "metrics": f"compute them in build_graph, and {_EVALUATION}.",
    "validation_steps validation_freq limit_val_batches check_val_every_n_epoch val_check_interval eval_steps": (
        "choose data and times in callbacks, as in tpk.PeriodicTrigger(tpk.InferenceRunner(...), every_k_epochs=2)."
    ),
    "log_dir logdir output_dir save_dir default_root_dir": "write run_dir.",
    "checkpoint_dir model_dir": "write run_dir, with 'ModelSaver' in callbacks, and resume='auto' to continue.",
    "monitor save_best_only save_top_k": "add tpk.MinSaver('validation_cost', keep=3) to callbacks.",
    "max_to_keep keep_checkpoint_max save_total_limit": "add tpk.ModelSaver(max_to_keep=3) to callbacks.",
    "save_freq save_steps save_checkpoints_steps": "add tpk.ModelSaver(when=tpk.Every(steps=1000)) to callbacks.",
    "ckpt_path resume_from_checkpoint": "write session_init for weights, or run_dir and resume='auto' to continue.",
    "patience": "add tpk.EarlyStopping('validation_cost', patience=5) to callbacks.",
    "logger loggers": "write extra_monitors, as in extra_monitors=['CSVWriter'].",
    "verbose enable_progress_bar": "leave it out. extra_callbacks replaces the defaults, such as 'ProgressBar'.",
    "fast_dev_run debug": "add 'DebugRun' to callbacks.",
    "max_time": "add tpk.MaxTime('2:00:00') to callbacks.",
    "optimizer lr learning_rate loss class_weight sample_weight": "the model defines it; see tpk.ModelDesc.",
    "gradient_clip_val max_grad_norm": "in optimizer(): tpk.apply_grad_processors(opt, [tpk.GlobalNormClip(1.0)]).",
    "accumulate_grad_batches gradient_accumulation_steps": "in optimizer(): tpk.AccumGradOptimizer(opt, 4).",
    "steps_per_execution steps_per_loop": "write steps_per_run.",
    "initial_epoch": "write starting_epoch, which counts from 1.",
    "predict_tower": "choose the device of a predictor: trainer.get_predictor(inputs, outputs, device=1).",
    "random_seed tf_random_seed": "write seed.",
    "trainer": "give it to the launcher, as in tpk.launch_train_with_config(config, 'SimpleTrainer').",
    "gpus devices nr_tower tower strategy accelerator precision xla jit_compile": _FOR_THE_TRAINER,
}
OPTIONS = {name: text for names, text in _OPTIONS.items() for name in names.split()}
"""Options, and what to write in a `TrainConfig` instead."""

TRAINER_OPTIONS = [name for name, text in OPTIONS.items() if text == _FOR_THE_TRAINER]
"""Options that belong to the trainer."""

_PORTED = ". The package tpk-tensorpack has it, in tpk_tensorpack.train"
NAMES = {
    "CSVLogger": "TrainConfig(extra_monitors=['CSVWriter'])",
    "FeedfreeTrainerBase": f"tpk.TowerTrainer{_PORTED}",
    "LearningRateFinder": "'LRFinder'",
    "LearningRateScheduler": "tpk.ScheduledHyperParamSetter('learning_rate', [(1, 0.1), (10, 0.01)])",
    "ModelCheckpoint": "'ModelSaver' for the last checkpoints, tpk.MinSaver('validation_cost') for the best",
    "MultiGPUTrainerBase": f"tpk.TowerTrainer and tpk.build_on_multi_tower{_PORTED}",
    "ReduceLROnPlateau": "tpk.StatMonitorParamSetter('learning_rate', 'validation_cost', lambda x: x / 10, 0, 5)",
    "SimpleFeedfreeTrainer": f"tpk.QueueInputTrainer{_PORTED}",
    "SingleCostFeedfreeTrainer": f"tpk.SingleCostTrainer{_PORTED}",
    "StochasticWeightAveraging": "tpk.MovingAverageOptimizer(optimizer) in the model",
    "TensorBoard": "nothing: 'TFEventWriter' is one of the default monitors",
    "TerminateOnNaN": "'NanGuard'",
}
"""Callbacks and classes of Keras, Lightning and tensorpack, and what to write instead."""

_EVALUATE = "call tpk.evaluate(model, data, [tpk.ScalarStats('cost')], session_init=trainer.run_dir)"
METHODS = {
    "fit": "call tpk.launch_train_with_config(config, trainer)",
    "predict": "use tpk.OfflinePredictor, or get_predictor in a callback's setup_graph",
    **dict.fromkeys(("evaluate", "test", "validate"), _EVALUATE),
}
"""Methods of a trainer, and what to write instead."""


def instead_of(name: str) -> str:
    """Return what to write instead of a name of another library; empty if it is unknown."""
    return f"{name!r} is a name of another library: write {NAMES[name]}." if name in NAMES else ""
