"""What runs a script that was written for tensorpack: its imports rewritten, TensorFlow's TF1 behaviour on."""
