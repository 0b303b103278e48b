"""Names that public scripts import, each from its documented module."""

from __future__ import annotations

import importlib

# All names that public repositories use, by module.
NAMES = """
tensorpack: __git_version__ __version__ tfv1
tensorpack.callbacks.base: Callback CallbackFactory
tensorpack.callbacks.graph: RunOp RunUpdateOps
tensorpack.callbacks.inference: BinaryClassificationStats ClassificationError ScalarStats
tensorpack.callbacks.inference_runner: DataParallelInferenceRunner InferenceRunner
tensorpack.callbacks.misc: EstimatedTimeLeft
tensorpack.callbacks.param: HumanHyperParamSetter HyperParamSetterWithFunc ObjAttrParam ScheduledHyperParamSetter
    StatMonitorParamSetter
tensorpack.callbacks.prof: GPUMemoryTracker GPUUtilizationTracker HostMemoryTracker ThroughputTracker
tensorpack.callbacks.saver: MaxSaver ModelSaver
tensorpack.callbacks.stats: DumpParamAsImage InjectShell SendStat
tensorpack.callbacks.steps: ProgressBar SessionRunTimeout
tensorpack.callbacks.summary: MergeAllSummaries MovingAverageSummary
tensorpack.callbacks.trigger: PeriodicCallback PeriodicTrigger
tensorpack.compat: tfv1
tensorpack.contrib.keras: KerasModel KerasPhaseCallback
tensorpack.dataflow: dataset imgaug
tensorpack.dataflow.base: DataFlow DataFlowReentrantGuard ProxyDataFlow RNGDataFlow
tensorpack.dataflow.common: BatchData BatchDataByShape ConcatData JoinData MapData MapDataComponent PrintData
    RandomMixData RepeatedData TestDataSpeed
tensorpack.dataflow.dataset: RNGDataFlow
tensorpack.dataflow.dataset.bsds500: BSDS500
tensorpack.dataflow.dataset.cifar: Cifar10 Cifar100
tensorpack.dataflow.dataset.ilsvrc: ILSVRC12 ILSVRC12Files ILSVRCMeta
tensorpack.dataflow.dataset.mnist: Mnist
tensorpack.dataflow.dataset.svhn: SVHNDigit
tensorpack.dataflow.image: AugmentImageComponent AugmentImageComponents ImageFromFile
tensorpack.dataflow.imgaug.base: AugmentorList ImageAugmentor
tensorpack.dataflow.imgaug.convert: Grayscale ToFloat32 ToUint8
tensorpack.dataflow.imgaug.crop: CenterCrop GoogleNetRandomCropAndResize RandomCrop
tensorpack.dataflow.imgaug.geometry: RotationAndCropValid
tensorpack.dataflow.imgaug.imgproc: Brightness BrightnessScale Contrast Lighting MeanVarianceNormalize Saturation
tensorpack.dataflow.imgaug.meta: MapImage RandomOrderAug
tensorpack.dataflow.imgaug.misc: Flip RandomResize Resize ResizeShortestEdge
tensorpack.dataflow.imgaug.noise: SaltPepperNoise
tensorpack.dataflow.imgaug.paste: CenterPaste RandomPaste
tensorpack.dataflow.imgaug.transform: CropTransform ResizeTransform
tensorpack.dataflow.parallel: MultiProcessRunner MultiProcessRunnerZMQ
tensorpack.dataflow.parallel_map: MultiProcessMapData MultiThreadMapData
tensorpack.dataflow.raw: DataFromList DataFromQueue FakeData
tensorpack.dataflow.serialize: LMDBSerializer
tensorpack.graph_builder.training: DataParallelBuilder
tensorpack.graph_builder.utils: LeastLoadedDeviceSetter
tensorpack.input_source.input_source: FeedInput QueueInput StagingInput TFDatasetInput TensorInput
tensorpack.libinfo: __git_version__ __version__
tensorpack.models.batch_norm: BatchNorm
tensorpack.models.conv2d: Conv2D Conv2DTranspose
tensorpack.models.fc: FullyConnected
tensorpack.models.layer_norm: InstanceNorm LayerNorm
tensorpack.models.linearwrap: LinearWrap
tensorpack.models.nonlin: BNReLU PReLU
tensorpack.models.pool: AvgPooling FixedUnPooling GlobalAvgPooling MaxPooling
tensorpack.models.registry: layer_register
tensorpack.models.regularize: Dropout l2_regularizer regularize_cost
tensorpack.models.shapes: ConcatWith
tensorpack.models.tflayer: convert_to_tflayer_args rename_get_variable rename_tflayer_get_variable
tensorpack.models.utils: VariableHolder
tensorpack.predict.base: OfflinePredictor
tensorpack.predict.concurrency: MultiThreadAsyncPredictor
tensorpack.predict.config: PredictConfig
tensorpack.predict.dataset: SimpleDatasetPredictor
tensorpack.predict.feedfree: FeedfreePredictor
tensorpack.predict.multigpu: MultiTowerOfflinePredictor
tensorpack.tfutils: gradproc model_utils optimizer sesscreate summary varreplace
tensorpack.tfutils.argscope: argscope enable_argscope_for_module get_arg_scope
tensorpack.tfutils.collect_env: collect_env_info
tensorpack.tfutils.common: get_default_sess_config get_global_step_var get_tf_version_tuple
tensorpack.tfutils.export: ModelExporter
tensorpack.tfutils.gradproc: GlobalNormClip MapGradient ScaleGradient SummaryGradient
tensorpack.tfutils.model_utils: describe_trainable_vars
tensorpack.tfutils.optimizer: AccumGradOptimizer apply_grad_processors
tensorpack.tfutils.scope_utils: auto_reuse_variable_scope under_name_scope
tensorpack.tfutils.sesscreate: NewSessionCreator
tensorpack.tfutils.sessinit: SmartInit
tensorpack.tfutils.summary: add_moving_summary add_param_summary
tensorpack.tfutils.tower: TowerContext TowerFunc get_current_tower_context
tensorpack.tfutils.varreplace: custom_getter_scope freeze_variables remap_variables
tensorpack.train.base: StopTraining
tensorpack.train.config: TrainConfig
tensorpack.train.interface: launch_train_with_config
tensorpack.train.model_desc: ModelDesc ModelDescBase
tensorpack.train.tower: TowerTrainer
tensorpack.train.trainers: AsyncMultiGPUTrainer HorovodTrainer SimpleTrainer SyncMultiGPUTrainer
    SyncMultiGPUTrainerParameterServer SyncMultiGPUTrainerReplicated
tensorpack.utils: fs logger serialize viz
tensorpack.utils.argtools: log_once memoized memoized_ignoreargs memoized_method shape2d shape4d
tensorpack.utils.concurrency: LoopThread ShareSessionThread StoppableThread enable_death_signal
    ensure_proc_terminate start_proc_mask_signal
tensorpack.utils.fs: download get_dataset_path mkdir_p recursive_walk
tensorpack.utils.gpu: change_gpu get_num_gpu
tensorpack.utils.logger: auto_set_dir error exception info set_logger_dir warn
tensorpack.utils.palette: PALETTE_RGB
tensorpack.utils.serialize: dumps loads
tensorpack.utils.stats: OnlineMoments RatioCounter StatCounter
tensorpack.utils.timer: timed_operation
tensorpack.utils.utils: execute_only_once get_rng get_tqdm
tensorpack.utils.viz: draw_boxes intensity_to_rgb interactive_imshow stack_patches
"""


def test_the_names_that_scripts_use_can_be_imported_from_where_tensorpack_has_them():
    names = names_by_module(NAMES)
    assert len(names) > 190
    assert not {name for name in names if not can_be_imported(*name)}


def names_by_module(text):
    found, module = set(), None
    for word in text.split():
        if word.endswith(":"):
            module = word[:-1]
        else:
            found.add((module, word))
    return found


def can_be_imported(module, name):
    module = module.replace("tensorpack", "tpk_tensorpack", 1)
    try:
        if hasattr(importlib.import_module(module), name):
            return True
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError as error:
        # A missing module of tpk_tensorpack, not a missing dependency.
        assert error.name.startswith("tpk_tensorpack"), error
        return False
    return True
