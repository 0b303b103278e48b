"""Names of the files in the directory of a run that describe it. Needs no TensorFlow."""

CONFIG_NAME = "config.json"
"""How it was configured, for people and programs to read."""

RUN_FILE_NAME = "config.toml"
"""What ``tpk train`` repeats it by."""

ATTEMPTS_NAME = "attempts.json"
"""How often it was started, and how each time ended."""
