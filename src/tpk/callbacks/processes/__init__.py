"""What runs besides a training: processes and threads that live as long as it, and commands that are told of it."""
