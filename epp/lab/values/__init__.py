"""The values of the charts: which keys there are, what is wrong with a values file, and one tree as the other."""
