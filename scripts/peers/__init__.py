"""What scripts/bench-peers and scripts/bench-toggle share."""
