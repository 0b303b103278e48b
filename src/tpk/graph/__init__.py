"""TensorFlow helpers that know nothing of training: variables, collections, gradients, optimizers, summaries."""

from __future__ import annotations

from tpk.graph import determinism, random
from tpk.graph.accumulation import AccumGradOptimizer
from tpk.graph.collections import freeze_collection
from tpk.graph.flops import ModelFlops, model_flops
from tpk.graph.global_step import get_global_step_var
from tpk.graph.gradient_processors import (
    CheckGradient,
    FilterNoneGrad,
    GlobalNormClip,
    GradientProcessor,
    MapGradient,
    ScaleGradient,
    SummaryGradient,
)
from tpk.graph.loss_scale import DynamicLossScaleOptimizer
from tpk.graph.model_overview import ModelOverview, log_model_overview, model_overview
from tpk.graph.non_finite import SkipNonFiniteOptimizer
from tpk.graph.objective import Objective
from tpk.graph.optimizers import (
    PostProcessOptimizer,
    ProxyOptimizer,
    VariableAssignmentOptimizer,
    apply_grad_processors,
)
from tpk.graph.variables import assign_values, saveable_variables, variable_name
from tpk.graph.weight_averages import MovingAverageOptimizer, averaged_weights

__all__ = [
    "AccumGradOptimizer",
    "CheckGradient",
    "DynamicLossScaleOptimizer",
    "FilterNoneGrad",
    "GlobalNormClip",
    "GradientProcessor",
    "MapGradient",
    "ModelFlops",
    "ModelOverview",
    "MovingAverageOptimizer",
    "Objective",
    "PostProcessOptimizer",
    "ProxyOptimizer",
    "ScaleGradient",
    "SkipNonFiniteOptimizer",
    "SummaryGradient",
    "VariableAssignmentOptimizer",
    "apply_grad_processors",
    "assign_values",
    "averaged_weights",
    "determinism",
    "freeze_collection",
    "get_global_step_var",
    "log_model_overview",
    "model_flops",
    "model_overview",
    "random",
    "saveable_variables",
    "variable_name",
]
