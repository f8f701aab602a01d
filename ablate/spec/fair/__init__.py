"""Fair twins of comparisons: what a spec asks for, and the studies that it becomes."""
