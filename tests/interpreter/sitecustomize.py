"""What Python imports first in the processes of nox's tests: it hides from Keras what this would import by the way.

TensorFlow imports Keras, which imports scikit-learn, matplotlib, pandas and IPython where they are installed: a third
of the seconds that `import tensorflow` takes. Who imports them later finds them.
"""

import sys

HIDDEN = {"sklearn", "matplotlib", "pandas", "IPython"}


class HiddenFromKeras:
    """Finds nothing of what is hidden while Keras is being imported."""

    def find_spec(self, name, path=None, target=None):
        """Return None, so that others look for it; see `importlib.abc.MetaPathFinder`."""
        keras = getattr(sys.modules.get("keras"), "__spec__", None)
        if name in HIDDEN and getattr(keras, "_initializing", False):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, HiddenFromKeras())
