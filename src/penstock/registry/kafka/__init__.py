"""How the registry uses the cluster: its topic, its one writer, and the group that elects it. All of it blocks."""
