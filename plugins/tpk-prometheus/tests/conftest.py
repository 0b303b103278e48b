pytest_plugins = ["tpk.testing"]
