"""How fast we are: each workload beside what the disk or a bare process would allow, in one run."""

import sys
from pathlib import Path

# The servers that the tests start are the servers of the benchmarks.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
