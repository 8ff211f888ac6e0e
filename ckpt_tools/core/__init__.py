"""What every format shares: keys, element types, lazy tensors, the tree, bounded reads. Standard library only."""
