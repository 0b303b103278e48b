from .asynchronous import AsyncStrategy as AsyncStrategy
from .base import (
    DEVICE_SPELLINGS as DEVICE_SPELLINGS,
    GPU_PREFETCH as GPU_PREFETCH,
    Strategy as Strategy,
)
from .device_setter import LeastLoadedDeviceSetter as LeastLoadedDeviceSetter
from .multi_process import MultiProcessStrategy as MultiProcessStrategy
from .parameter_server import ParameterServerStrategy as ParameterServerStrategy
from .process_group import ProcessGroup as ProcessGroup, SingleProcess as SingleProcess
from .replicated import (
    POST_INIT_OPS_KEY as POST_INIT_OPS_KEY,
    ReplicatedStrategy as ReplicatedStrategy,
    get_post_init_ops as get_post_init_ops,
)
from .single import SingleStrategy as SingleStrategy
from .towers import (
    Tower as Tower,
    build_on_multi_tower as build_on_multi_tower,
    in_turn as in_turn,
)
from .update_order import (
    after_reads as after_reads,
    apply_in_groups as apply_in_groups,
)
