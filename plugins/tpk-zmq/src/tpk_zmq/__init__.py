"""Datapoints over ZeroMQ: a sender, a receiving dataflow and an input source."""

from tpk_zmq.input_source import ZMQInput
from tpk_zmq.receiver import RemoteDataZMQ
from tpk_zmq.sender import send_dataflow_zmq

__all__ = ["RemoteDataZMQ", "ZMQInput", "send_dataflow_zmq"]
