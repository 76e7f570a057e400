"""The splits of a data set: images, captions, which belong together; and what can be wrong with a copy of them."""
