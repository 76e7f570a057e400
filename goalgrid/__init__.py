"""goalgrid: ablation grids for image-text retrieval objectives, from one command to the paper's table."""
