"""Datapoints from one process to another: messages over a socket, arrays through shared memory."""
