from .creator import (
    NewSessionCreator as NewSessionCreator,
    ReuseSessionCreator as ReuseSessionCreator,
    SessionCreator as SessionCreator,
    as_session_creator as as_session_creator,
    default_session_config as default_session_config,
    running_queues as running_queues,
)
from .hooked import HookedSession as HookedSession
