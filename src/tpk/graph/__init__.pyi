from . import (
    determinism as determinism,
    random as random,
)
from .devices import resolve_devices as resolve_devices
from .fetches import ops_run_for as ops_run_for
from .gradients import compute_gradients as compute_gradients
from .objective import Objective as Objective
from .optimizers.accumulation import AccumGradOptimizer as AccumGradOptimizer
from .optimizers.gradient_processors import (
    CheckGradient as CheckGradient,
    FilterNoneGrad as FilterNoneGrad,
    GlobalNormClip as GlobalNormClip,
    GradientProcessor as GradientProcessor,
    MapGradient as MapGradient,
    PrintGradient as PrintGradient,
    ScaleGradient as ScaleGradient,
    SummaryGradient as SummaryGradient,
    apply_grad_processors as apply_grad_processors,
)
from .optimizers.loss_scale import DynamicLossScaleOptimizer as DynamicLossScaleOptimizer
from .optimizers.non_finite import SkipNonFiniteOptimizer as SkipNonFiniteOptimizer
from .optimizers.proxy_optimizer import (
    PostProcessOptimizer as PostProcessOptimizer,
    ProxyOptimizer as ProxyOptimizer,
    VariableAssignmentOptimizer as VariableAssignmentOptimizer,
    copies_of_optimizers as copies_of_optimizers,
)
from .optimizers.weight_averages import (
    MovingAverageOptimizer as MovingAverageOptimizer,
    averaged_weights as averaged_weights,
)
from .regularization import (
    l1_regularizer as l1_regularizer,
    l2_regularizer as l2_regularizer,
    regularize_cost as regularize_cost,
    regularize_cost_from_collection as regularize_cost_from_collection,
)
from .reports.overview import (
    ModelOverview as ModelOverview,
    model_overview as model_overview,
)
from .reports.png import encode_png as encode_png
from .reports.summary_ops import (
    MOVING_SUMMARY_OPS_KEY as MOVING_SUMMARY_OPS_KEY,
    add_activation_summary as add_activation_summary,
    add_moving_summary as add_moving_summary,
    add_param_summary as add_param_summary,
    add_tensor_summary as add_tensor_summary,
    maintain_averages as maintain_averages,
)
from .scopes import (
    added_since as added_since,
    auto_reuse_variable_scope as auto_reuse_variable_scope,
    backup_collection as backup_collection,
    cached_name_scope as cached_name_scope,
    check_can_be_collected as check_can_be_collected,
    collection_sizes as collection_sizes,
    custom_getter_scope as custom_getter_scope,
    freeze_collection as freeze_collection,
    freeze_variables as freeze_variables,
    remap_variables as remap_variables,
    restore_collection as restore_collection,
    under_name_scope as under_name_scope,
    under_variable_scope as under_variable_scope,
)
from .step_counter import get_global_step_var as get_global_step_var
from .tower_options import compiled_by_xla as compiled_by_xla
