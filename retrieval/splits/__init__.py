"""The splits of a data set: images, captions and their pairing, and the detection of problems in a copy of the data."""
