"""`collections`, including the abstract classes, which Python 3.10 left to ``collections.abc``."""

import collections
from collections import *
from collections.abc import *

from tpk_tensorflow1.older import names_of

__getattr__ = names_of(collections)
