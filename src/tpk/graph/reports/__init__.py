"""Reports about a graph: summaries of tensors, and an overview of the model."""
