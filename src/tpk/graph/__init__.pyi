from . import (
    determinism as determinism,
    random as random,
)
from .collections import freeze_collection as freeze_collection
from .flops import (
    ModelFlops as ModelFlops,
    model_flops as model_flops,
)
from .objective import Objective as Objective
from .optimizers.accumulation import AccumGradOptimizer as AccumGradOptimizer
from .optimizers.gradient_processors import (
    CheckGradient as CheckGradient,
    FilterNoneGrad as FilterNoneGrad,
    GlobalNormClip as GlobalNormClip,
    GradientProcessor as GradientProcessor,
    MapGradient as MapGradient,
    ScaleGradient as ScaleGradient,
    SummaryGradient as SummaryGradient,
    apply_grad_processors as apply_grad_processors,
)
from .optimizers.loss_scale import DynamicLossScaleOptimizer as DynamicLossScaleOptimizer
from .optimizers.non_finite import SkipNonFiniteOptimizer as SkipNonFiniteOptimizer
from .optimizers.proxy import (
    PostProcessOptimizer as PostProcessOptimizer,
    ProxyOptimizer as ProxyOptimizer,
    VariableAssignmentOptimizer as VariableAssignmentOptimizer,
)
from .optimizers.weight_averages import (
    MovingAverageOptimizer as MovingAverageOptimizer,
    averaged_weights as averaged_weights,
)
from .overview import (
    ModelOverview as ModelOverview,
    model_overview as model_overview,
)
from .step.global_step import get_global_step_var as get_global_step_var
from .summaries import (
    add_activation_summary as add_activation_summary,
    add_moving_summary as add_moving_summary,
    add_param_summary as add_param_summary,
    add_tensor_summary as add_tensor_summary,
)
