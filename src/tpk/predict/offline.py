"""A predictor with a graph and a session of its own."""

from __future__ import annotations

from tpk.predict.config import PredictConfig
from tpk.predict.online import OnlinePredictor


class OfflinePredictor(OnlinePredictor):
    """A predictor with a graph and a session of its own: for a model that was trained before.

    It is a context manager, at whose end it is closed.

    Args:
        config: the model, its weights, inputs and outputs.

    Attributes:
        graph: the `tf.Graph`.
        sess: the raw session.

    Raises:
        CheckpointError: if the weights do not fit the model; it names the variables.
        TowerError: if the model has no tensor of a name.
        InputError: if the outputs depend on an input that is not among the input names.

    Example:
        ```python
        config = tpk.PredictConfig(model=Model(), session_init="runs/cats", output_names=["probabilities"])
        with tpk.OfflinePredictor(config) as predict:
            (probabilities,) = predict(images)
        ```
    """

    def __init__(self, config: PredictConfig) -> None:
        built = config.build_graph()
        (tower,) = built.towers
        super().__init__(tower.inputs, tower.fetches, lambda: self.sess)
        self.graph = built.graph
        self.sess = built.create_session()
        self.graph.finalize()

    def close(self) -> None:
        """Close the session; a call after that is an error. It may be closed twice."""
        self.sess.close()

    def __enter__(self) -> OfflinePredictor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
