"""Callbacks that look inside a training: profiles, values of tensors, images, gradients."""
