"""Data sets on the disk: their formats, their faults and their content. `opening` alone needs torch at once."""
