"""Where datapoints come from: lists and iterables, queues, random numbers. Files are in `serialize`, peers in `zmq`."""
