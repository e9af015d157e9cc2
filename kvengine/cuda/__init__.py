"""The GPU, through CUDA's driver interface: what a copier needs of it, and nothing else."""
