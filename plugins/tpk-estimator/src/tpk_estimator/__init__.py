"""`tf.estimator` on tpk's trainers: programs for TensorFlow's Estimator run on today's TensorFlow.

The names are those of `tf.estimator`, and so are the files of a model directory: Estimator and this package continue
each other's trainings.

```python
estimator = tpk_estimator.Estimator(model_fn, "runs/digits", params={"learning_rate": 1e-3})
estimator.train(input_fn, steps=1000)
print(estimator.evaluate(input_fn))
```
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
