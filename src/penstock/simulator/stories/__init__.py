"""What happens to simulated clusters, and the laws that hold meanwhile."""
