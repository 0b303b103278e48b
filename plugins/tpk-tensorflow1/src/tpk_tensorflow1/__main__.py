"""`python -m tpk_tensorflow1 script.py ...`: run a script for TensorFlow 1 unchanged."""

from tpk_tensorflow1.runner.script import run_command

if __name__ == "__main__":
    run_command("tpk_tensorflow1", "Run a script for TensorFlow 1 unchanged on TensorFlow 2.")
