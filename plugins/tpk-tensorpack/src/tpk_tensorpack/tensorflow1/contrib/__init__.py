"""What was `tf.contrib`, as far as there is something that stands for it."""
