"""Who asks, and whether they may."""
