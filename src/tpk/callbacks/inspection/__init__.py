"""What looks at a training from inside: profiles, values of tensors, images, gradients, numerics."""
