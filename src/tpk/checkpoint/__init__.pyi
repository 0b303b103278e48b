from .files import (
    Checkpoint as Checkpoint,
    newest_complete as newest_complete,
)
from .reader import (
    CheckpointReader as CheckpointReader,
    find_checkpoint as find_checkpoint,
)
from .session_init import (
    ChainInit as ChainInit,
    DictRestore as DictRestore,
    NpzRestore as NpzRestore,
    SaverRestore as SaverRestore,
    SaverRestoreRelaxed as SaverRestoreRelaxed,
    SessionInit as SessionInit,
    SmartInit as SmartInit,
)
from .stored_values import NpzReader as NpzReader
