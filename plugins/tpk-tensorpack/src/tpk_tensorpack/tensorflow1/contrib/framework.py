"""What was `tf.contrib.framework`."""
