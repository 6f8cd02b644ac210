"""How fast we are: each workload beside what the disk or a bare process would allow, in one run."""
