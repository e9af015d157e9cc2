"""The GPU through CUDA's driver API: what a copier needs of it, and nothing else."""
