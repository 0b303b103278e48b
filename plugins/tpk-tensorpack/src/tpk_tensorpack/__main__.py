"""`python -m tpk_tensorpack script.py ...`: run a tensorpack script unchanged."""

from tpk_tensorflow1.runner.script import run_command

from tpk_tensorpack.runner import PACKAGES

if __name__ == "__main__":
    description = "Run a script written for tensorpack and TensorFlow 1 unchanged on TensorFlow 2."
    run_command("tpk_tensorpack", description, PACKAGES, resource_variables=True)
