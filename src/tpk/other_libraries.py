"""What users of other libraries write, and what to write in tpk instead."""

from __future__ import annotations

TRAINER_OPTIONS = (  # noqa: SIM905 - a table of names reads better in lines
    "gpus devices num_gpus nr_gpu nr_tower tower strategy distribute accelerator precision xla jit_compile"
).split()

_EVALUATION = "add an evaluation to callbacks, as in tpk.InferenceRunner(validation, tpk.ScalarStats('cost'))"
_OPTIONS = {
    "epochs max_epochs num_epochs num_train_epochs nr_epoch n_epochs": "write max_epoch.",
    "steps step_per_epoch num_steps max_steps train_steps": "write steps_per_epoch and max_epoch.",
    "limit_train_batches": "write steps_per_epoch, or overfit_batches for a test.",
    "dataset train_data train_dataloaders inputs": "write dataflow, or data for a tpk.InputSource.",
    "x y": "write dataflow=tpk.BatchData(list(zip(x, y)), 32).",
    "shuffle": "write dataflow=tpk.BatchData(tpk.DataFromList(datapoints, shuffle=True), 32).",
    "batch_size": "write dataflow=tpk.BatchData(flow, batch_size).",
    "input_fn": "write data=tpk.TFDatasetInput(input_fn).",
    "validation_data validation_split val_data val_dataloaders eval_dataset eval_data": f"{_EVALUATION}.",
    "validation_steps validation_freq val_check_interval check_val_every_n_epoch limit_val_batches eval_steps": (
        "choose data and times in callbacks, as in tpk.PeriodicTrigger(tpk.InferenceRunner(...), every_k_epochs=2)."
    ),
    "metrics": f"compute them in the model's build_graph, and {_EVALUATION}.",
    "log_dir logdir output_dir save_dir default_root_dir": "write run_dir.",
    "checkpoint_dir model_dir": (
        "write run_dir, with 'ModelSaver' in callbacks to save checkpoints there, and resume='auto' to continue."
    ),
    "monitor save_best_only load_best_model_at_end save_top_k save_total_limit max_to_keep keep_checkpoint_max": (
        "add tpk.MinSaver('validation_cost', keep=3) to callbacks for the best checkpoints, or "
        "tpk.ModelSaver(max_to_keep=3) for the last ones."
    ),
    "save_freq save_steps save_checkpoints_steps": "add tpk.ModelSaver(when=tpk.Every(steps=1000)) to callbacks.",
    "enable_checkpointing": "add 'ModelSaver' to callbacks.",
    "patience early_stopping": "add tpk.EarlyStopping('validation_cost', patience=5) to callbacks.",
    "ckpt_path resume_from_checkpoint": (
        "write session_init for weights, or run_dir and resume='auto' to continue a run."
    ),
    "logger loggers": "write extra_monitors, as in extra_monitors=['CSVWriter'].",
    "verbose enable_progress_bar": "leave it out. extra_callbacks replaces the defaults, such as 'ProgressBar'.",
    "profiler": "add 'GraphProfiler' to callbacks.",
    "detect_anomaly": "add 'CheckNumerics' to callbacks.",
    "fast_dev_run debug": "add 'DebugRun' to callbacks.",
    "max_time": "add tpk.MaxTime('2:00:00') to callbacks.",
    "hooks": "add tpk.HookToCallback(hook) to callbacks.",
    "optimizer lr learning_rate loss class_weight sample_weight": "the model defines it; see tpk.ModelDesc.",
    "gradient_clip_val clipnorm max_grad_norm": (
        "in the model's optimizer, write tpk.apply_grad_processors(optimizer, [tpk.GlobalNormClip(1.0)])."
    ),
    "accumulate_grad_batches gradient_accumulation_steps": (
        "in the model's optimizer, write tpk.AccumGradOptimizer(optimizer, 4)."
    ),
    "sync_batchnorm": "in the model, write tpk.layers.batch_normalization(..., sync=True).",
    "steps_per_execution steps_per_loop": "write steps_per_run.",
    "workers num_workers use_multiprocessing": "write dataflow=tpk.MultiProcessRunner(flow, 4).",
    "initial_epoch": "write starting_epoch, which counts from 1.",
    "predict_tower": "choose the device of a predictor: trainer.get_predictor(inputs, outputs, device=1).",
    "random_seed tf_random_seed": "write seed.",
    "trainer": "give it to the launcher, as in tpk.launch_train_with_config(config, 'SimpleTrainer').",
    " ".join(TRAINER_OPTIONS): (
        "give it to the trainer, as in tpk.launch_train_with_config(config, tpk.use('replicated', devices=2, "
        "precision='bfloat16'))."
    ),
}
OPTIONS = {name: text for names, text in _OPTIONS.items() for name in names.split()}
"""Options, and what to write in a `TrainConfig` instead."""

_PORTED = ". The package tpk-tensorpack has it, in tpk_tensorpack.train"
NAMES = {
    "BackupAndRestore": "'ModelSaver' in callbacks, and TrainConfig(run_dir=..., resume='auto')",
    "CSVLogger": "TrainConfig(extra_monitors=['CSVWriter'])",
    "FeedfreeTrainerBase": f"tpk.TowerTrainer{_PORTED}",
    "GradientAccumulationScheduler": "tpk.AccumGradOptimizer(optimizer, 4) in the model",
    "LambdaCallback": "tpk.CallbackFactory(trigger_epoch=function)",
    "LearningRateFinder": "'LRFinder'",
    "LearningRateScheduler": "tpk.ScheduledHyperParamSetter('learning_rate', [(1, 0.1), (10, 0.01)])",
    "ModelCheckpoint": "'ModelSaver' for the last checkpoints, tpk.MinSaver('validation_cost') for the best",
    "MultiGPUTrainerBase": f"tpk.TowerTrainer and tpk.build_on_multi_tower{_PORTED}",
    "ReduceLROnPlateau": (
        "tpk.StatMonitorParamSetter('learning_rate', 'validation_cost', lambda rate: rate / 10, threshold=0, last_k=5)"
    ),
    "SimpleFeedfreeTrainer": f"tpk.QueueInputTrainer{_PORTED}",
    "SingleCostFeedfreeTrainer": f"tpk.SingleCostTrainer{_PORTED}",
    "StochasticWeightAveraging": "tpk.MovingAverageOptimizer(optimizer) in the model",
    "TensorBoard": "nothing: 'TFEventWriter' is one of the default monitors",
    "TerminateOnNaN": "'NanGuard'",
    "Timer": "tpk.MaxTime('2:00:00')",
}
"""Callbacks and classes of Keras, Lightning and tensorpack, and what to write instead."""

METHODS = {
    "fit": "call tpk.launch_train_with_config(config, trainer)",
    **dict.fromkeys(
        ("evaluate", "test", "validate"),
        "call tpk.evaluate(model, data, [tpk.ScalarStats('cost')], session_init=trainer.run_dir)",
    ),
    "predict": (
        "call tpk.OfflinePredictor(tpk.PredictConfig(model=..., session_init=trainer.run_dir, output_names=[...]))"
    ),
}
"""Methods of a trainer, and what to write instead."""


def instead_of(name: str) -> str:
    """Return what to write instead of a name of another library; empty if it is unknown."""
    return f"{name!r} is a name of another library: write {NAMES[name]}." if name in NAMES else ""
