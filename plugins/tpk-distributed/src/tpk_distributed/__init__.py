"""Training in several processes, on one host or many, with TensorFlow's own servers and collective operations.

The package adds three strategies and their named trainers to tpk, and the command ``tpk launch``. Their names work as
soon as the package is installed, without an import:

```python
tpk.launch_train_with_config(config, "collective")  # or tpk.use("collective", compression="fp16")
```

Each process runs the same script. ``tpk launch -n 2 train.py`` starts them on this host; on several hosts SLURM or
Kubernetes does.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
