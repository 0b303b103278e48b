"""Flows on top of one flow: maps, batches, repetitions and shuffles of its datapoints."""
