"""What is told of a graph: summaries of its tensors, tables of its parts, what a step of it computes."""
