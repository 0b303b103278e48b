"""Flows to files and back: LMDB, TFRecord, npz and HDF5, each through the library that owns the format.

Each has ``save(flow, path)`` and ``load(path) -> DataFlow``. What is loaded can be shuffled, divided among workers and
resumed without reading more than is delivered. A file appears at its path when it is complete, never before. Loading
one runs no code that the file brings, unless ``allow_pickle`` says so.

| | datapoints | written | read |
|---|---|---|---|
| `LMDBSerializer` | any structure; sizes may vary; no checksums | one after the other | at random |
| `TFRecordSerializer` | the same; damage is found by checksums | one after the other | at random |
| `HDF5Serializer` | arrays and text, each component of one shape; checksums of arrays | in blocks | at random |
| `NumpySerializer` | the same, of a size that fits into memory | at once | at once |
"""
