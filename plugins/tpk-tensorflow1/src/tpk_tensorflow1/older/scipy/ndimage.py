"""`scipy.ndimage`, including ``imread``."""

from scipy import ndimage
from scipy.ndimage import *

from tpk_tensorflow1.older import names_of
from tpk_tensorflow1.older.scipy.misc import imread as imread

__getattr__ = names_of(ndimage)
