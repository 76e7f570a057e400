"""Videos with captions: features of experts on the disk, converted from their public forms, and read in batches."""
