"""`time`, including ``clock``, which Python 3.8 removed."""

import time
from time import *
from time import process_time as clock

from tpk_tensorflow1.older import names_of

__getattr__ = names_of(time)
