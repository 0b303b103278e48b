"""Datapoints over ZeroMQ: sender, receiver, their sockets, keys and messages."""
