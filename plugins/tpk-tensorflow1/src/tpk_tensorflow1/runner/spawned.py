"""Imported by fresh processes of `multiprocessing` instead of the script, which it runs with its imports replaced."""

from tpk_tensorflow1.runner.behavior import use_tensorflow1
from tpk_tensorflow1.runner.processes import script_of_parent

_script = script_of_parent()
use_tensorflow1(_script.resource_variables)
_script.replace_imports()
_script.share()
_script.run_in(globals())
