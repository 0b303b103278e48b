"""A step as a graph: what runs in it, what counts it, and loops of several."""
